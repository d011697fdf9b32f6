#!/usr/bin/python3
"""Tests torch.distributed on the backend "rueda", on one node and on two, however the ranks are started.

RUEDA_TEST_PYTHON is the Python that has the PyTorch to be tested, instead of Debian's."""

import os
import subprocess
import sys
import unittest

import harness
from harness import IntegrationTest

FOLDER = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.environ.get("RUEDA_TEST_PYTHON", harness.PYTHON)
RANK = os.path.join(FOLDER, "distributed_rank.py")


def torch_version():
    command = [PYTHON, "-c", "import torch; print(torch.__version__)"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


VERSION = torch_version()


@unittest.skipUnless(VERSION, "PyTorch is not installed (deploy/packages.sh test installs it)")
class DistributedTest(IntegrationTest):

    def run_cases(self, module, ranks, nodes, *cases, **variables):
        run = self.ruedarun("-np", str(ranks), "--virtual-nodes", str(nodes), PYTHON, RANK, module, *cases, extra_env=variables)
        self.assertEqual(run.exit_code(300), 0, run.output())
        for rank in range(ranks):
            self.assertIn(f"[{rank}] ok", run.output().split("\n"))

    def test_collectives(self):
        for ranks, nodes in harness.amount([(4, 2)], [(1, 1), (2, 1), (4, 2)]):
            with self.subTest(ranks=ranks, nodes=nodes):
                self.run_cases("collectives", ranks, nodes)

    def test_groups_and_messages(self):
        for ranks, nodes in harness.amount([(3, 2)], [(1, 1), (3, 2)]):
            with self.subTest(ranks=ranks, nodes=nodes):
                self.run_cases("groups", ranks, nodes)

    def test_ddp_learns_what_it_learns_on_gloo(self):
        for ranks, nodes in harness.amount([(4, 2)], [(2, 1), (4, 2)]):
            with self.subTest(ranks=ranks, nodes=nodes):
                self.run_cases("ddp", ranks, nodes)

    def test_whoever_asks_for_gloo_gets_rueda(self):
        self.run_cases("replaces", 3, 2, RUEDA_TORCH_REPLACES="gloo", RUEDA_TEST_BACKEND="gloo")

    def test_features(self):
        self.run_cases("features", 4, 2, TMPDIR=self.folder)  # the compiler leaves folders there

    def test_it_trains_with_pytorchs_debugging_on(self):
        self.run_cases("features", 3, 2, "case_a_sum_with_a_factor", "case_coalescing_manager", "case_batches_of_messages",
                       "case_compiled_ddp", TORCH_DISTRIBUTED_DEBUG="DETAIL")

    @unittest.skipIf(VERSION.startswith("1."), "PyTorch 1.13 has no FSDP on the CPU")
    def test_fsdp_learns_what_it_learns_on_gloo(self):
        for ranks, nodes in harness.amount([(4, 2)], [(2, 1), (4, 2)]):
            with self.subTest(ranks=ranks, nodes=nodes):
                self.run_cases("fsdp", ranks, nodes)

    @harness.needs_long_tier
    def test_a_thousand_steps_leave_nothing_behind(self):
        self.run_cases("thousand", 2, 1)

    def test_a_rank_that_dies_is_named_by_the_others(self):
        """DDP is told by the future of an operation, where an error once was taken for a tensor."""
        for case in harness.amount(["ddp"], ["all_reduce", "ddp", "arena_hook"]):
            with self.subTest(case=case):
                run = self.ruedarun("-np", "3", PYTHON, RANK, "death", f"case_{case}")
                self.assertNotEqual(run.exit_code(), 0)
                for rank in (0, 1):
                    run.wait_for(rf"^\[{rank}\] told: .*rank 2 \(pid \d+\)")

    def start_with(self, daemon, environment, *command):
        return self.start(list(command), extra_env={"RUEDA_SOCKET": daemon.socket, **environment})

    def expect_ok(self, *runs):
        for run in runs:
            self.assertEqual(run.exit_code(), 0, run.output())
            self.assertIn("ok", run.output())

    def torchrun(self, daemon, *arguments):
        # Debian's torchrun fails under Python 3.11 unless its output goes into files.
        log = ["--log_dir", os.path.join(self.folder, "log"), "--redirects", "1", "--tee", "1"]
        return self.start_with(daemon, {}, PYTHON, "-m", "torch.distributed.run", *log, "--nproc_per_node", "2",
                               *arguments)

    def test_under_torchrun(self):
        self.expect_ok(self.torchrun(self.start_daemon("node"), "--master_port", str(harness.free_port()), RANK,
                                     "collectives", "case_all_reduce", "case_average"))

    def test_under_torchrun_on_two_nodes(self):
        port = str(harness.free_port())
        runs = [self.torchrun(daemon, "--nnodes", "2", "--node_rank", str(node), "--master_addr", "127.0.0.1",
                              "--master_port", port, RANK, "groups", "case_new_group", "case_send_and_recv",
                              "case_made_again_from_the_environment")
                for node, daemon in enumerate(self.start_daemons("first", "second"))]
        self.expect_ok(*runs)

    def run_with_master_addr(self, *arguments):
        port = str(harness.free_port())
        daemons = self.start_daemons("first", "second")
        runs = [self.start_with(daemons[rank // 2], {"RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1",
                                                     "MASTER_PORT": port}, PYTHON, RANK, *arguments) for rank in range(3)]
        self.expect_ok(*runs)

    def test_with_master_addr_alone(self):
        self.run_with_master_addr("groups", "case_new_group", "case_made_again_from_the_environment")

    def test_a_world_that_becomes_smaller_is_another_job(self):
        """The ranks that were left were once told that they belong to a larger job."""
        self.run_with_master_addr("worlds")

    def test_without_a_daemon_it_says_how_to_start_one(self):
        run = self.start([PYTHON, RANK, "groups"], extra_env={
            "RUEDA_SOCKET": os.path.join(self.folder, "nobody"), "RANK": "0", "WORLD_SIZE": "1",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(harness.free_port())})
        self.assertNotEqual(run.exit_code(), 0)
        self.assertRegex(run.output(), "no .*daemon .*nobody")


if __name__ == "__main__":
    print(f"PyTorch {VERSION or 'is not there'}", file=sys.stderr)
    harness.main()
