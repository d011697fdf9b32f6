#!/usr/bin/python3
"""Tests that rueda-bench finds nothing wrong, for every dtype and op, over ranks, nodes and sizes, and that it does find what is
wrong when a daemon reduces wrongly."""

import json
import os

import harness
from harness import SANITIZED, IntegrationTest, amount

DTYPES = 14
OPS = 5
PAIRS = 12 * OPS + 2 * 2  # of a dtype and an operator: of complex numbers only sums and averages are checked
# Sizes are in bytes, or in elements (e): none, one, odd ones, just over a chunk, and more than the slots of a lane.
SMALL_SIZES = ["0", "1e", "3e", "17e", "1021e", "16391e"]
LARGE_SIZES = ["65549e", f"{(1 << 20) + 13}e"]
WITH_PARTS = ("allgather", "reduce_scatter", "alltoall", "gather", "scatter")
REDUCING = ("allreduce", "reduce", "reduce_scatter")
WORLDS = amount(change=[(1, 1), (4, 2), (3, 3)],
                long=[(ranks, nodes) for ranks in (1, 2, 3, 4) for nodes in (1, 2, 3) if nodes <= ranks],
                sanitized=[(3, 2)])


class BenchTest(IntegrationTest):

    def bench(self, ranks, nodes, *arguments, expected_code=0, daemon_args=(), fault=None):
        """Returns the rows of one run."""
        path = os.path.join(self.folder, "bench.json")
        faulty = ["--ruedad", harness.program(harness.FAULTY_RUEDAD)] if fault else []
        run = self.ruedarun("-np", str(ranks), "--virtual-nodes", str(nodes), *faulty,
                            *(f"--daemon-arg={argument}" for argument in daemon_args), harness.program("rueda-bench"),
                            *arguments, "--json", path, extra_env={harness.FAULT: fault} if fault else {})
        self.assertEqual(run.exit_code(240), expected_code, run.output())
        with open(path, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        os.unlink(path)
        for row in rows:
            self.assertEqual((row["nranks"], row["nnodes"]), (ranks, nodes), row)
        return rows

    def assert_right(self, rows, count):
        self.assertEqual(len(rows), count)
        self.assertEqual([row for row in rows if row["wrong"] != 0], [])

    def allreduce(self, ranks, nodes, sizes, *arguments, dtype="all", op="all", **options):
        return self.bench(ranks, nodes, "allreduce", "--dtype", dtype, "--op", op, "--sizes", ",".join(sizes), "--warmup",
                          "0", "--iters", "2", *arguments, **options)


class MatrixTest(BenchTest):

    def test_every_dtype_and_op_on_every_world(self):
        worlds = [(3, 2), (4, 2), (3, 3)] if SANITIZED else WORLDS
        sizes = ["0", "1e", "1021e"] if SANITIZED else SMALL_SIZES
        for ranks, nodes in worlds:
            with self.subTest(ranks=ranks, nodes=nodes):
                self.assert_right(self.allreduce(ranks, nodes, sizes), PAIRS * len(sizes))

    def test_larger_sizes(self):
        for ranks, nodes in amount([(1, 1), (4, 3)], [(1, 1), (2, 2), (3, 2), (4, 2), (4, 3)], [(3, 2)]):
            with self.subTest(ranks=ranks, nodes=nodes):
                sizes = LARGE_SIZES[:1] if SANITIZED else LARGE_SIZES
                self.assert_right(self.allreduce(ranks, nodes, sizes, op="sum"), DTYPES * len(sizes))

    def test_the_largest_size(self):
        size = amount("16M", "64M", "4M")
        self.assert_right(self.allreduce(4, 2, [size], dtype="float32", op="sum"), 1)

    def test_in_place_and_foreign_memory(self):
        sizes = ["0", "1e", "1021e", "65549e"]
        for flag in ("--inplace", "--foreign"):
            for ranks, nodes in amount([(3, 2)], [(3, 1), (3, 2), (4, 3)], [(3, 2)]):
                with self.subTest(flag=flag, ranks=ranks, nodes=nodes):
                    self.assert_right(self.allreduce(ranks, nodes, sizes, flag, op="sum"), DTYPES * len(sizes))

    def test_broadcast_and_barrier(self):
        sizes = ["0", "1e", "1021e", "65549e"]
        for ranks, nodes in WORLDS:
            with self.subTest(ranks=ranks, nodes=nodes):
                rows = self.bench(ranks, nodes, "broadcast", "--dtype", "all", "--sizes", ",".join(sizes), "--warmup", "0",
                                  "--iters", "2")
                self.assert_right(rows, DTYPES * len(sizes))
                self.assert_right(self.bench(ranks, nodes, "barrier", "--iters", "20"), 1)

    def test_reduce_and_collectives_with_parts(self):
        sizes = ["0", "12e", "1021e", "65549e"]
        for work in ("reduce", *WITH_PARTS):
            for ranks, nodes in amount([(2, 1), (4, 2)], [(2, 1), (3, 2), (4, 2)], [(3, 2)]):
                with self.subTest(work=work, ranks=ranks, nodes=nodes):
                    rows = self.bench(ranks, nodes, work, "--dtype", "all", "--sizes", ",".join(sizes), "--warmup", "0",
                                      "--iters", "2")
                    self.assert_right(rows, DTYPES * len(sizes))
                    parts = ranks if work in WITH_PARTS else 1
                    self.assertEqual([row["count"] for row in rows if row["dtype"] == "int8"],
                                     [count // parts * parts for count in (0, 12, 1021, 65549)])

    def test_parts_in_place_in_foreign_memory_and_from_another_root(self):
        for work, *flags in (("reduce", "--op", "all"), ("reduce", "--inplace", "--root", "1"),
                             ("reduce_scatter", "--op", "all"), ("reduce_scatter", "--inplace"),
                             ("reduce_scatter", "--foreign"), ("allgather", "--inplace"), ("allgather", "--foreign"),
                             ("alltoall", "--foreign"), ("gather", "--inplace", "--root", "2"), ("gather", "--foreign"),
                             ("scatter", "--inplace", "--root", "2"), ("scatter", "--foreign")):
            with self.subTest(work=work, flags=flags):
                rows = self.bench(4, 2, work, "--sizes", "12e,65549e", "--warmup", "0", "--iters", "2", *flags)
                self.assert_right(rows, 2 * (OPS if "--op" in flags else 1))

    def test_whole_models(self):
        for model, tensors in (("resnet50", 161), ("small1000", 1000)):
            with self.subTest(model=model):
                rows = self.bench(4, 2, "step", "--model", model, "--iters", "1", "--warmup", "0")
                self.assertGreaterEqual(len(rows), 1)
                self.assert_right(rows, len(rows))
                self.assertEqual({row["tensors"] for row in rows}, {tensors})

    def test_a_model_that_repeats_until_it_is_locked(self):
        """The tensors are neighbours in memory, and reduced as one; the last step is checked, too."""
        [row] = self.bench(4, 2, "step", "--model", "small1000", "--dtype", "float32", "--op", "sum", "--iters", "12",
                           "--warmup", "10", "--foreign")
        self.assertEqual(row["wrong"], 0, row)
        [row] = self.bench(4, 2, "step", "--model", "small1000", "--dtype", "float32", "--op", "sum", "--iters", "12",
                           "--warmup", "10")
        self.assertEqual(row["wrong"], 0, row)
        self.assertEqual(row["order_messages_per_step"], 0, row)

    def test_first_steps_with_and_without_a_declared_plan(self):
        [row] = self.bench(4, 2, "step", "--model", "small16", "--op", "sum", "--iters", "2", "--plan")
        self.assertEqual(row["wrong"], 0, row)
        for steps in (row["first_steps_us"], row["first_steps_declared_us"]):
            self.assertEqual(len(steps), 4, row)
            self.assertGreater(min(steps), 0, row)
        self.assertGreater(row["declare_us"], 0, row)
        [row] = self.bench(2, 1, "step", "--model", "small16", "--iters", "2")
        self.assertEqual((row["first_steps_us"], row["declare_us"]), ([], None))

    def test_what_is_rounded_on_its_way(self):
        """Results are exact where they must be, within the bound elsewhere, and have the same bits on all ranks."""
        sizes = ["0", "1e", "3e", "1021e", "65549e"]
        for ranks, nodes in amount([(3, 2), (5, 5)], [(3, 1), (2, 2), (3, 2), (4, 2), (3, 3), (5, 5)], [(3, 2)]):
            for wire in ("float16", "bfloat16"):
                with self.subTest(ranks=ranks, nodes=nodes, wire=wire):
                    rows = self.allreduce(ranks, nodes, sizes, "--wire", wire, dtype="float32")
                    self.assert_right(rows, OPS * len(sizes))
                    self.assertEqual({row["wire"] for row in rows}, {wire})
        for work in ("reduce", "reduce_scatter"):
            rows = self.bench(4, 2, work, "--wire", "bfloat16", "--op", "all", "--sizes", "12e,65548e", "--warmup", "0",
                              "--iters", "2")
            self.assert_right(rows, OPS * 2)
        [row] = self.bench(4, 2, "step", "--model", "small1000", "--wire", "bfloat16", "--iters", "12", "--warmup", "10")
        self.assertEqual((row["wrong"], row["order_messages_per_step"]), (0, 0), row)

    def test_only_float32_is_rounded(self):
        run = self.ruedarun("-np", "2", "--virtual-nodes", "2", harness.program("rueda-bench"), "allreduce", "--dtype",
                            "int32", "--wire", "bfloat16", "--sizes", "4K")
        self.assertNotEqual(run.exit_code(), 0)
        self.assertRegex(run.output(), "is int32, and is to be rounded to bfloat16 on its way; only float32 can be")

    def test_small_chunks_and_no_fusion(self):
        """There are many chunks and many operations for the same sums."""
        rows = self.allreduce(4, 2, ["1e", "16391e"], op="sum",
                              daemon_args=["--chunk-bytes=4096", "--fusion-threshold=0", "--staging-bytes=1MiB"])
        self.assert_right(rows, DTYPES * 2)

    def test_several_streams(self):
        for streams, sizes in ((2, ["1e", "1021e", "65549e"]), (4, ["3M"])):
            for ranks, nodes in amount([(4, 2)], [(4, 2), (3, 3)]):
                with self.subTest(streams=streams, ranks=ranks, nodes=nodes):
                    daemon_args = [f"--streams={streams}", "--chunk-bytes=64K"]
                    rows = self.allreduce(ranks, nodes, sizes, op="sum", daemon_args=daemon_args)
                    self.assert_right(rows, DTYPES * len(sizes))
                    for work in ("broadcast", "alltoall", "gather"):
                        rows = self.bench(ranks, nodes, work, "--sizes", ",".join(sizes), "--iters", "2",
                                          daemon_args=daemon_args)
                        self.assert_right(rows, len(sizes))

    def test_several_data_loops(self):
        for loops, ranks, nodes in amount([(3, 3, 3)], [(1, 4, 2), (3, 3, 3)]):
            with self.subTest(loops=loops, ranks=ranks, nodes=nodes):
                daemon_args = [f"--data-loops={loops}", "--chunk-bytes=64K"]
                sizes = ["1e", "65549e", "3M"]
                rows = self.allreduce(ranks, nodes, sizes, op="sum", dtype="float32,uint8", daemon_args=daemon_args)
                self.assert_right(rows, 2 * len(sizes))
                for work in ("broadcast", "alltoall", "gather", "reduce_scatter"):
                    rows = self.bench(ranks, nodes, work, "--sizes", ",".join(sizes), "--iters", "2",
                                      daemon_args=daemon_args)
                    self.assert_right(rows, len(sizes))


class FaultTest(BenchTest):

    def test_a_wrong_reduction_is_found(self):
        for ranks, nodes in ((2, 1), (4, 2)):
            with self.subTest(ranks=ranks, nodes=nodes):
                rows = self.allreduce(ranks, nodes, ["1e", "4K"], op="sum", expected_code=1, fault="reduce")
                self.assertEqual(len(rows), DTYPES * 2)
                self.assertEqual([row for row in rows if row["wrong"] == 0], [])

    def test_it_is_found_in_what_is_rounded(self):
        for wire in ("float16", "bfloat16"):
            with self.subTest(wire=wire):
                [row] = self.bench(4, 2, "allreduce", "--wire", wire, "--sizes", "4K", "--warmup", "0", "--iters", "2",
                                   expected_code=1, fault="reduce")
                self.assertNotEqual(row["wrong"], 0)

    def test_it_is_found_in_whatever_reduces(self):
        for work in REDUCING:
            for ranks, nodes in ((2, 1), (4, 2)):
                with self.subTest(work=work, ranks=ranks, nodes=nodes):
                    rows = self.bench(ranks, nodes, work, "--sizes", "12e,4K", "--warmup", "0", "--iters", "2",
                                      expected_code=1, fault="reduce")
                    self.assertEqual(len(rows), 2)
                    self.assertEqual([row for row in rows if row["wrong"] == 0], [])


if __name__ == "__main__":
    harness.main()
