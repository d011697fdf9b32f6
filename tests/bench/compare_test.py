#!/usr/bin/python3
"""Tests what needs neither a daemon nor a peer of bench/compare.py and growth.py. Argument: the folder of compare.py."""

import argparse
import contextlib
import io
import sys
import tempfile
import time
import types
import unittest
from pathlib import Path
from unittest import mock

sys.dont_write_bytecode = True
if __name__ == "__main__":
    sys.path.insert(0, sys.argv.pop(1))

import compare
import growth
from comparing import machine, measuring, network, plot, processes, report, rounds, sides, work
from comparing.processes import CompareError
from comparing.sides import horovod
from comparing.sides import side as one_side
from comparing.sides.rueda import Rueda


def run_of(times, cpu=1.0, disturbed=False):
    return {
        "results": [{"bytes": 4, "time_us": t, "busbw_GBps": 1.0, "cpu_s_per_GB": cpu} for t in times],
        "noise_cores": 0.5 if disturbed else 0.01,
        "disturbed": disturbed,
        "attempts": 1,
    }


def report_of(done, ours="Rueda", others=("Gloo",), **setup):
    return {
        "setup": {"np": 4, "nodes": 2, "iters": 20, "rounds": len(done), "congestion": "bbr", "hogs": 0,
                  "network": "loopback", "cpus": 2, "model": None, "tensors": 0, **setup},
        "limits": {"memcpy_1_thread_GBps": 11.0, "memcpy_2_threads_GBps": 17.0, "tcp_one_way_GBps": 4.0,
                   "tcp_congestion": "bbr", "cache_line_round_trip_ns": None},
        "rows": rounds.summarize(done, [4096], ours, list(others)),
        "cpu_includes_daemons": True,
        "left_out": {},
        "rounds": done,
    }


class SizesTest(unittest.TestCase):
    def test_suffixes(self):
        self.assertEqual(work.parse_sizes("0,4,4K,64M"), [0, 4, 4096, 64 << 20])

    def test_ranges_go_up_by_four(self):
        self.assertEqual(work.parse_sizes("4-64"), [4, 16, 64])
        self.assertEqual(work.parse_sizes("1K-8K,1G"), [1024, 4096, 1 << 30])

    def test_refuses(self):
        for text in ("", "K", "-4", "3", "4KB", "1.5M", "4K-", "8K-4K", "0-4"):
            with self.assertRaises(argparse.ArgumentTypeError, msg=text):
                work.parse_sizes(text)

    def test_are_said_as_they_are_typed(self):
        self.assertEqual([work.format_size(size) for size in (0, 52, 4096, 3 << 20, 1 << 30)],
                         ["0 B", "52 B", "4 KiB", "3 MiB", "1 GiB"])

    def test_rates(self):
        self.assertEqual(work.rate_bytes_per_s(work.parse_rate("10gbit")), 1_250_000_000)
        for text in ("10", "0gbit", "1gbps", "1.5gbit"):
            with self.assertRaises(argparse.ArgumentTypeError, msg=text):
                work.parse_rate(text)


class ArgumentsTest(unittest.TestCase):
    def test_wrong_lines(self):
        for words in (["--np", "2", "--nodes", "3"], ["--rate", "1gbit"], ["--side", "horses"], ["--rounds", "0"]):
            with self.assertRaises(SystemExit) as caught, contextlib.redirect_stderr(io.StringIO()):
                compare.parse_arguments(words)
            self.assertEqual(caught.exception.code, 2, words)

    def test_sides_fit_the_work(self):
        self.assertNotIn("ddp", compare.parse_arguments([]).side)
        self.assertIn("horovod", compare.parse_arguments([]).side)
        self.assertNotIn("horovod-0.1ms", compare.parse_arguments([]).side)
        self.assertIn("ddp", compare.parse_arguments(["--model", "small1000"]).side)
        self.assertEqual(compare.parse_arguments(["--side", "gloo,rueda"]).side, ["gloo", "rueda"])

    def test_ours_come_first_once_a_mode(self):
        made = sides.make_sides(["gloo", "rueda", "floor"], "/nowhere", {"coordination": ["locked", "negotiate"]})
        self.assertEqual([one.name for one in made], ["Rueda locked", "Rueda negotiate", "Gloo", "floor"])


class WorkTest(unittest.TestCase):
    def test_ranks_of_nodes(self):
        five = work.Work(ranks=5, nodes=2, sizes=[4])
        self.assertEqual(five.ranks_by_node(), [3, 2])
        self.assertEqual([five.node_of(rank) for rank in range(5)], [0, 0, 0, 1, 1])
        with self.assertRaises(IndexError):
            five.node_of(5)


class NetworkTest(unittest.TestCase):
    def test_the_systems_loopback_needs_nothing(self):
        with network.open_network(2) as net:
            self.assertEqual((len(net.nodes), net.is_joined, net.places()), (2, False, "127.0.0.1,127.0.0.1"))
            self.assertEqual(net.nodes[0].command(["true", 1]), ["true", "1"])

    def test_a_node_of_its_own_is_entered(self):
        node = network.Node("10.77.0.1", "eth0", "n")
        self.assertEqual(node.command(["true"]), ["nsenter", "--net=/run/netns/n", "true"])
        self.assertEqual(node.place(), "10.77.0.1@/run/netns/n")

    def test_what_cannot_be_set_up_is_taken_down(self):
        said = []

        def run(words):
            said.append(" ".join(words))
            if "tbf" in words:
                raise CompareError("no tbf here")
            return ""

        with mock.patch.object(network, "run", run), self.assertRaises(CompareError):
            with network.open_network(2, is_joined=True, rate="1gbit"):
                self.fail("it was not set up")
        added = [line for line in said if line.startswith("ip netns add")]
        deleted = [line for line in said if line.startswith("ip netns del")]
        self.assertEqual([line.split()[-1] for line in reversed(added)], [line.split()[-1] for line in deleted])
        self.assertGreater(len(added), 1)

    def test_bursts_outlast_a_tick(self):
        self.assertEqual(network.burst_bytes("1gbit"), 1_000_000)
        self.assertEqual(network.burst_bytes("1mbit"), 128 << 10)


class RuedaTest(unittest.TestCase):
    def commands(self, joined):
        nodes = tuple(network.Node(f"10.77.0.{i}", "eth0", f"n{i}") for i in (1, 2)) if joined else (network.Node(),) * 2
        with mock.patch("comparing.sides.rueda.find_program", lambda bin_dir, name: name):
            return Rueda("/bin").commands(work.Work(ranks=3, nodes=2, sizes=[4]), network.Network(nodes, joined, ""), "out")

    def test_one_launcher_on_one_network(self):
        (command,) = self.commands(False)
        self.assertEqual(command[command.index("--virtual-nodes") + 1], "2")
        self.assertIn("--daemon-arg=--tcp-congestion=system", command)

    def test_once_a_mode_and_a_number_of_streams(self):
        made = sides.make_sides(["rueda"], "/bin", {"coordination": ["locked"], "streams": ["1", "4"]})
        self.assertEqual([side.name for side in made], ["Rueda locked x1", "Rueda locked x4"])
        self.assertIn("--daemon-arg=--streams=4", made[1].flags)

    def test_one_launcher_a_node_on_several(self):
        first, second = self.commands(True)
        self.assertEqual(first[first.index("-np") + 1], "2")
        self.assertEqual(second[second.index("-np") + 1], "1")
        self.assertEqual(second[second.index("--node-rank") + 1], "1")
        self.assertEqual(second[second.index("--rdzv-endpoint") + 1], "10.77.0.1:29400")

    def test_another_build_is_a_side_of_its_own(self):
        made = sides.make_sides(["rueda", "floor"], "/new", before="/old")
        self.assertEqual([(side.name, side.bin_dir) for side in made[:2]], [("Rueda", "/new"), ("Rueda before", "/old")])
        self.assertEqual(len(made), 3)

    def test_a_fusion_threshold_is_a_side_of_its_own(self):
        made = sides.make_sides(["rueda"], "/bin", {"fusion": ["64M", "0"]})
        self.assertEqual([side.name for side in made], ["Rueda fusion 64M", "Rueda fusion 0"])
        self.assertEqual([side.flags for side in made], [["--fusion-threshold", "64M"], ["--fusion-threshold", "0"]])

    def test_a_wire_dtype_is_a_side_of_its_own(self):
        names = [side.name for side in sides.make_sides(
            ["rueda"], "/bin", {"coordination": ["locked"], "streams": ["2"], "wire": ["same", "bfloat16"]})]
        self.assertEqual(names, ["Rueda locked x2 same", "Rueda locked x2 bfloat16"])
        with mock.patch("comparing.sides.rueda.find_program", lambda bin_dir, name: name):
            (command,) = Rueda("/bin", wire="bfloat16").commands(
                work.Work(ranks=3, nodes=2, sizes=[4]), network.Network((network.Node(),) * 2, False, ""), "out")
        self.assertEqual(command[command.index("--wire") + 1], "bfloat16")


class HorovodTest(unittest.TestCase):
    def commands(self, side, **what):
        side.python = "python"
        nodes = tuple(network.Node(f"10.77.0.{i}", f"eth{i}", f"n{i}") for i in (1, 2))
        return side.commands(work.Work(ranks=3, nodes=2, **{"sizes": [4, 8], **what}), network.Network(nodes, True, ""), "/folder")

    def test_a_worker_a_rank_on_its_node(self):
        commands = self.commands(horovod.Horovod())
        said = [(line[1], line[line.index("--rank") + 1], line[line.index("--interface") + 1]) for line in commands]
        self.assertEqual(said, [("--net=/run/netns/n1", "0", "eth1"), ("--net=/run/netns/n1", "1", "eth1"),
                                ("--net=/run/netns/n2", "2", "eth2")])
        for line in commands:
            self.assertEqual(line[line.index("--nodes") + 1], "2,1")
            self.assertEqual(line[line.index("--address") + 1], "10.77.0.1")
            self.assertEqual(line[line.index("--sizes") + 1], "4,8")
            self.assertNotIn("--cycle-ms", line)

    def test_a_model_is_its_tensors(self):
        for line in self.commands(horovod.Horovod(), model="small10", shapes=[[2]]):
            self.assertEqual(line[line.index("--shapes") + 1], "/folder/shapes")
            self.assertNotIn("--sizes", line)

    def test_a_shorter_cycle_is_a_side_of_its_own(self):
        made = sides.make_sides(["horovod", "horovod-0.1ms"], "/bin")
        self.assertEqual([side.name for side in made], ["Horovod", "Horovod 0.1 ms"])
        line = self.commands(made[1])[0]
        self.assertEqual(line[line.index("--cycle-ms") + 1], "0.1")

    def test_the_folder_can_be_named(self):
        with mock.patch.dict("os.environ", RUEDA_HOROVOD_DIR="/nowhere"):
            self.assertIsNone(horovod.horovod_python())
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict("os.environ", RUEDA_HOROVOD_DIR=folder):
            python = Path(folder) / "venv" / "bin" / "python"
            python.parent.mkdir(parents=True)
            python.write_text("#!/bin/sh\nexit 0\n")
            python.chmod(0o755)
            self.assertEqual(horovod.horovod_python(), str(python))


class MeasuringTest(unittest.TestCase):
    """The loop of the workers, with two ranks of which the other one is always twice as slow, and has one wrong element."""

    def measure(self, size, iters=3):
        calls = []
        task = types.SimpleNamespace(prepare=lambda: calls.append("prepare"), operate=lambda: calls.append("operate"),
                                     checked=lambda: calls.append("check") or 1)
        peers = types.SimpleNamespace(ranks=2, barrier=lambda: calls.append("barrier"),
                                      largest=lambda values: [2 * value for value in values],
                                      sums=lambda values: [values[0] + 1, values[1] + 1])
        return measuring.measure(task, peers, size, iters, 2), calls

    def test_operations_are_between_checks_and_after_a_warmup(self):
        _, calls = self.measure(4)
        self.assertEqual(calls, ["check", *["operate"] * 2, "prepare", "barrier", *["operate"] * 3, "check"])

    def test_all_ranks_are_in_the_numbers(self):
        clock = iter((0.0, 1.0, 4.0, 6.0))
        with mock.patch.object(measuring.time, "monotonic", lambda: next(clock)):
            found, _ = self.measure(4)
        self.assertEqual((found["wrong"], found["nranks"], found["iters"]), (3, 2, 3))
        self.assertEqual((found["time_us"], found["time_us_p99"]), (4e6, 6e6))
        self.assertAlmostEqual(found["cpu_s_per_GB"], 1e9 / 3 / 4, delta=1e8)

    def test_no_bytes_have_no_cpu_per_byte_and_sizes_choose_how_often(self):
        found, _ = self.measure(0, iters=0)
        self.assertIsNone(found["cpu_s_per_GB"])
        self.assertEqual(found["iters"], 200)


class SummaryTest(unittest.TestCase):
    def test_ratios_are_taken_round_by_round(self):
        done = [
            {"Rueda": run_of([10]), "Gloo": run_of([30])},
            {"Rueda": run_of([20]), "Gloo": run_of([40])},
            {"Rueda": run_of([10]), "Gloo": run_of([50])},
        ]
        (row,) = rounds.summarize(done, [4], "Rueda", ["Gloo"])
        self.assertEqual(row["sides"]["Rueda"]["time_us"], {"median": 10, "min": 10, "max": 20})
        self.assertEqual(row["sides"]["Gloo"]["time_us"]["median"], 40)
        self.assertEqual(row["ratios"]["Gloo"], {"median": 3, "min": 2, "max": 5})

    def test_no_bytes_have_no_cpu_per_byte(self):
        done = [{"Rueda": run_of([10], cpu=None), "Gloo": run_of([30], cpu=None)}]
        (row,) = rounds.summarize(done, [0], "Rueda", ["Gloo"])
        self.assertIsNone(row["sides"]["Rueda"]["cpu_s_per_GB"])

    def test_tables(self):
        text = report.markdown(report_of([{"Rueda": run_of([10]), "Gloo": run_of([30])}]))
        self.assertIn("| 4 KiB | 10.0 (10.0..10.0) | 30.0 (30.0..30.0) |", text)
        self.assertIn("| 4 KiB | 3.00× (3.00..3.00) |", text)
        self.assertIn("| 4 KiB | 1.00 (1.00..1.00) | 1.00 (1.00..1.00) |", text)
        self.assertIn("bbr", text)
        self.assertIn("memcpy of 64 MiB, 1 thread 11.0 GB/s; 2 threads 17.0 GB/s", text)
        self.assertNotIn("distrusted", text)

    def test_a_floor_is_a_share_and_may_lack_small_sizes(self):
        floor = run_of([8])
        text = report.markdown(report_of([{"Rueda": run_of([10]), "floor": floor}], others=["floor"]))
        self.assertIn("| 4 KiB | 80.0 % (80.0..80.0) |", text)
        floor["results"] = [{"bytes": 4096}]
        text = report.markdown(report_of([{"Rueda": run_of([10]), "floor": floor}], others=["floor"]))
        self.assertIn("| 4 KiB | 10.0 (10.0..10.0) | – |", text)

    def test_modes_of_a_model(self):
        done = [{"Rueda locked": run_of([10]), "Rueda negotiate": run_of([25]), "Gloo": run_of([40])}]
        done[0]["Rueda locked"]["results"][0]["order_messages_per_step"] = 0.0
        done[0]["Rueda negotiate"]["results"][0]["order_messages_per_step"] = 12.5
        text = report.markdown(report_of(done, "Rueda locked", ("Rueda negotiate", "Gloo"), model="small1000",
                                         tensors=1000))
        self.assertIn("A step of small1000 (1000 tensors), 4 ranks", text)
        self.assertIn("to agree on the order, a step: Rueda locked 0.00, Rueda negotiate 12.5.", text)

    def test_what_is_doubtful_is_said(self):
        found = report_of([{"Rueda": run_of([10], disturbed=True), "Gloo": run_of([30])}], hogs=2)
        found["left_out"] = {"DDP": "python3-torch is not installed"}
        found["cpu_includes_daemons"] = False
        text = report.markdown(found)
        self.assertIn("1 of them stayed above", text)
        self.assertIn("Left out: DDP (python3-torch is not installed).", text)
        self.assertIn("lack the daemons'", text)
        self.assertIn("beside 2 processes", text)

    def test_numbers_have_three_digits(self):
        self.assertEqual([report.number(value) for value in (0.1234, 9.994, 9.996, 12.34, 99.96, 12345.6)],
                         ["0.12", "9.99", "10.0", "12.3", "100", "12346"])


class ResultsTest(unittest.TestCase):
    def test_wrong_results_are_errors(self):
        with self.assertRaisesRegex(CompareError, "3 wrong elements at 4 bytes"):
            one_side.parse_results('{"bytes": 4, "wrong": 3}', [4], "Rueda")

    def test_a_missing_size_is_an_error(self):
        with self.assertRaises(CompareError):
            one_side.parse_results('{"bytes": 4, "wrong": 0}', [4, 8], "Rueda")


class LeftOutTest(unittest.TestCase):
    def choose(self, *words, joined=False):
        options = compare.parse_arguments(["--bin-dir", "/nowhere", *words])
        said = []
        with mock.patch("shutil.which", lambda name: None):
            try:
                compare.choose_sides(options, work.Work(ranks=2, nodes=2, sizes=[4]),
                                     network.Network((network.Node(),) * 2, joined, ""), said.append)
            except CompareError as error:
                said.append(str(error))
        return said

    def test_a_peer_that_is_not_there_is_named_with_the_remedy(self):
        said = self.choose("--side", "mpi-shm")
        self.assertIn("left out: Open MPI shm: Open MPI is not installed: deploy/packages.sh bench", said[0])
        self.assertIn("no side is left to measure", said[1])

    def test_horovod_that_is_not_there_is_named_with_the_remedy(self):
        with mock.patch.dict("os.environ", RUEDA_HOROVOD_DIR="/nowhere"):
            said = self.choose("--side", "horovod")
        self.assertIn("left out: Horovod: Horovod is not installed: bench/install_horovod.sh", said[0])

    def test_without_rueda_there_is_nothing_to_compare(self):
        self.assertIn("build first", self.choose("--side", "rueda")[0])

    def test_ddp_measures_steps(self):
        self.assertIn("give --model", self.choose("--side", "ddp")[0])


class FakeSide(one_side.Side):
    name = "Fake"

    def __init__(self):
        self.runs = 0

    def measure(self, work, network):
        self.runs += 1
        return [{"time_us": 1.0}, {"bytes": 4}]


def meter_of(noises):
    return lambda: types.SimpleNamespace(cores=lambda: noises.pop(0))


class RoundsTest(unittest.TestCase):
    def measure(self, noises):
        side = FakeSide()
        task = work.Work(ranks=1, nodes=1, sizes=[4])
        return side, rounds.measure_quietly(side, task, None, 2, lambda text: None, meter_of(noises))

    def test_a_disturbed_run_is_repeated(self):
        side, run = self.measure([0.5, 0.02])
        self.assertEqual(side.runs, 2)
        self.assertFalse(run["disturbed"])

    def test_but_not_for_ever(self):
        side, run = self.measure([0.5, 0.5, 0.5])
        self.assertEqual(side.runs, 3)
        self.assertTrue(run["disturbed"])

    def test_every_other_round_runs_backwards(self):
        order = []
        first, second = FakeSide(), FakeSide()
        first.name, second.name = "first", "second"
        with mock.patch.object(rounds, "measure_quietly", lambda side, *rest: order.append(side.name)):
            rounds.run_rounds([first, second], None, None, 2, 0, lambda text: None)
        self.assertEqual(order, ["first", "second", "second", "first"])


class BusyTest(unittest.TestCase):
    def test_a_busy_machine_is_an_error_or_said(self):
        said = []
        with self.assertRaisesRegex(CompareError, "1.50 of .* --busy-ok"):
            machine.require_quiet(False, said.append, 0, meter_of([1.5]))
        machine.require_quiet(True, said.append, 0, meter_of([1.5]))
        self.assertIn("distrust", said[0])
        machine.require_quiet(False, said.append, 0, meter_of([0.05]))
        self.assertEqual(len(said), 1)

    def test_hogs_end_with_the_block(self):
        started = []
        popen = machine.subprocess.Popen
        with mock.patch.object(machine.subprocess, "Popen",
                               lambda *args, **kwargs: started.append(popen(*args, **kwargs)) or started[-1]):
            with machine.hogs(2):
                self.assertEqual([process.poll() for process in started], [None, None])
        self.assertEqual([process.returncode for process in started], [-9, -9])


class PlotTest(unittest.TestCase):
    def test_a_curve_a_side(self):
        try:
            plot.require_matplotlib()
        except CompareError as error:
            self.assertIn("deploy/packages.sh bench", str(error))
            self.skipTest(str(error))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.svg"
            plot.busbw_svg(report_of([{"Rueda": run_of([10]), "Gloo": run_of([30])}]), path)
            self.assertIn("<svg", path.read_text())


class GrowthTest(unittest.TestCase):
    def test_each_kind_grows_one_thing(self):
        options = growth.parse_arguments(["--max-bytes", "64", "--max-ranks", "3", "--max-nodes", "2", "--max-tensors",
                                          "100"])
        points = list(growth.points(options))
        self.assertEqual([(p.kind, p.x) for p in points],
                         [("bytes", 4), ("bytes", 16), ("bytes", 64), ("ranks", 1), ("ranks", 2), ("ranks", 3),
                          ("nodes", 1), ("nodes", 2), ("tensors", 1), ("tensors", 10), ("tensors", 100)])
        self.assertEqual([p.model for p in points if p.kind == "tensors"], ["small1", "small10", "small100"])
        self.assertEqual([(p.ranks, p.nodes) for p in points if p.kind == "nodes"], [(1, 1), (2, 2)])

    def test_table(self):
        text = growth.markdown({"setup": {"cpus": 2, "congestion": "bbr", "rounds": 1}, "curves": {
            "bytes": {"Rueda": [[4, 10.0], [16, None]]}, "memory": {"Rueda": [[4, 2.5]]}}, "noise_cores": 0.05, "left_out": {}})
        self.assertIn("| 4 B | 10.0 |", text)
        self.assertIn("| 16 B | – |", text)
        self.assertIn("| 4 B | 2.50 |", text)


class RunGroupTest(unittest.TestCase):
    def test_outputs_by_command(self):
        self.assertEqual(processes.run_group([["echo", "a"], ["echo", "b"]], 30), ["a\n", "b\n"])

    def test_environment(self):
        texts = processes.run_group([["sh", "-c", "echo $RANK"]], 30, [{"RANK": "7"}])
        self.assertEqual(texts, ["7\n"])

    def test_one_that_fails_ends_the_others(self):
        start = time.monotonic()
        with self.assertRaisesRegex(CompareError, "status 5"):
            processes.run_group([["sleep", "600"], ["sh", "-c", "echo why >&2; exit 5"]], 300)
        self.assertLess(time.monotonic() - start, 250)

    def test_time_is_bounded(self):
        with self.assertRaisesRegex(CompareError, "was ended"):
            processes.run_group([["sleep", "600"]], 0.1)


if __name__ == "__main__":
    unittest.main()
