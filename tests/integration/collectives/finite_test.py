#!/usr/bin/python3
"""Tests RUEDA_CHECK_FINITE=1: one rank plants NaN in one step, and the standard error of all ranks names it."""

import os
import re
import subprocess
import unittest

import harness
from harness import PYTHON, IntegrationTest

HAS_TORCH = subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode == 0
RANKS = 4


class FiniteTest(IntegrationTest):

    def run_job(self, nodes, *arguments, flags=(), env=None):
        run = self.ruedarun("-np", str(RANKS), "--virtual-nodes", str(nodes), *flags, PYTHON,
                            os.path.join(harness.RANKS, "finite_rank.py"), *map(str, arguments),
                            extra_env={"RUEDA_CHECK_FINITE": "1"} if env is None else env)
        self.assertEqual(run.exit_code(), 0, run.output())
        return run.output()

    def reports(self, output):
        """Returns, by rank, what it has said on its standard error."""
        return [re.findall(rf"^\[{rank}\] rueda: rank {rank}: not finite: (.*?);", output, re.MULTILINE)
                for rank in range(RANKS)]

    def assert_found(self, nodes, *arguments, tensor="w1", what="NaN", value="nan", then=(), **options):
        floats = arguments[2]
        output = self.run_job(nodes, *arguments, f"2:5:w1:{value}", *then, **options)
        said = self.reports(output)
        expected = rf"rank 2 on node \S+ gave {what} in element {floats // 2} of tensor \"{tensor}\" in step 5"
        for of_rank in said:
            self.assertEqual(len(of_rank), 1, output)
            self.assertRegex(of_rank[0], f"^{expected}$")
        self.assertEqual(len({of_rank[0] for of_rank in said}), 1, output)
        return output


class NumpyTest(FiniteTest):

    def test_all_ranks_of_two_nodes_name_the_same_one(self):
        for floats in (100, 50_000, 1_000_000):  # tests an exchange, and the ring
            with self.subTest(floats=floats):
                output = self.assert_found(2, "numpy", 6, floats, then=["wait"])
                first = f"tensor='w1', rank=2, step=5, element={floats // 2}, value=nan, process_set_id=0"
                for rank in range(RANKS):
                    self.assertIn(f"[{rank}] first Nonfinite({first})", output.split("\n"))

    def test_memory_of_the_arena_that_is_reduced_in_place(self):
        for nodes in (1, 2):
            with self.subTest(nodes=nodes):
                self.assert_found(nodes, "arena", 6, 50_000, what="-infinity", value="-inf")

    def test_one_node(self):
        for floats in (100, 1_000_000):  # tests the control loop, and the data loop
            with self.subTest(floats=floats):
                self.assert_found(1, "numpy", 6, floats)

    def test_a_locked_schedule_and_one_that_never_is(self):
        for flags in (("--lock-after", "1"), ("--coordination", "negotiate"), ("--fusion-threshold", "0")):
            with self.subTest(flags=flags):
                self.assert_found(2, "arena", 12, 1000, flags=flags)

    def test_each_device_and_several_loops(self):
        self.assert_found(2, "arena", 6, 400_000, flags=("--reducer", "device"))
        self.assert_found(2, "arena", 6, 400_000, flags=("--daemon-arg=--data-loops=2",))

    def test_the_lowest_of_several_comes_first(self):
        output = self.run_job(2, "arena", 6, 1000, "3:4:w0:nan", "1:4:w2:inf", "1:4:w1:inf", "0:5:w0:nan")
        for said in self.reports(output):
            self.assertIn("rank 1 on node", said[0])
            self.assertIn('infinity in element 500 of tensor "w1" in step 4', said[0])
            self.assertEqual(len(said), 1)

    def test_a_job_that_ends_at_once_is_told_all_the_same(self):
        for nodes in (1, 2):
            with self.subTest(nodes=nodes):
                self.assert_found(nodes, "numpy", 5, 1000)

    def test_finite_values_are_not_reported(self):
        output = self.run_job(2, "arena", 6, 50_000)
        self.assertEqual(self.reports(output), [[]] * RANKS)
        self.assertEqual(output.count("first None"), RANKS)

    def test_nothing_is_looked_at_unless_it_is_asked_for(self):
        for env in ({}, {"RUEDA_CHECK_FINITE": "0"}):
            output = self.run_job(2, "arena", 3, 1000, "1:2:w0:nan", env=env)
            self.assertEqual(self.reports(output), [[]] * RANKS)
        output = self.run_job(2, "arena", 3, 1000, "1:2:w0:nan", env={}, flags=("--check-finite",))
        self.assertEqual([len(said) for said in self.reports(output)], [1] * RANKS)

    def test_the_metric_counts_and_the_log_says_so(self):
        daemons = self.start_daemons("alpha", "beta")
        counts = "rueda_nonfinite_contributions_total"
        command = [PYTHON, os.path.join(harness.RANKS, "finite_rank.py"), "arena", "6", "1000"]
        planted = [f"2:{step}:w1:nan" for step in (3, 4, 5)]
        job = self.start_job(daemons, [2, 2], [*command, *planted, "pause"], ["--check-finite"])
        job.wait_for(0, "^first Nonfinite")
        self.assertEqual([daemon.metric(counts) for daemon in daemons], [0, 3])
        for daemon in daemons:
            daemon.wait_for('not finite: rank 2 on node beta gave NaN in element 500 of tensor "w1" in step 3')
        for launcher in job.launchers:
            launcher.send(2)
        self.assertNotIn(None, job.exit_codes())


@unittest.skipUnless(HAS_TORCH, "PyTorch is not installed (deploy/packages.sh test installs it)")
class TorchTest(FiniteTest):

    def test_a_gradient_of_the_distributed_optimizer(self):
        self.assert_found(2, "torch", 6, 5000, tensor="allreduce.w1")


if __name__ == "__main__":
    harness.main()
