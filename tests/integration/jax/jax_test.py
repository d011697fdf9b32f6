#!/usr/bin/python3
"""Tests rueda.jax under ruedarun, on one rank and on several, on one node and on two. They need JAX, and librueda_jax.so in the build:
tests/run.sh --jax has both."""

import collections
import json
import os
import re
import subprocess
import unittest

import harness
from harness import BUILD, IntegrationTest

FOLDER = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(harness.SOURCE, "client", "python", "examples")
PYTHON = os.environ.get("RUEDA_TEST_PYTHON", harness.PYTHON)
HAS_JAX = (os.path.exists(os.path.join(BUILD, "lib", "librueda_jax.so"))
           and subprocess.run([PYTHON, "-c", "import jax.ffi"], capture_output=True, check=False).returncode == 0)


@unittest.skipUnless(HAS_JAX, "JAX or librueda_jax.so is not there (tests/run.sh --jax brings both)")
class JaxTest(IntegrationTest):

    def run_rank(self, ranks, nodes, *command, flags=()):
        run = self.ruedarun("-np", str(ranks), "--virtual-nodes", str(nodes), *flags, PYTHON, os.path.join(FOLDER, command[0]),
                            *command[1:])
        self.assertEqual(run.exit_code(300), 0, run.output())
        for rank in range(ranks):
            self.assertIn(f"[{rank}] ok", run.output().split("\n"))
        return run

    def run_cases(self, layouts, *command):
        for ranks, nodes in layouts:
            with self.subTest(ranks=ranks, nodes=nodes):
                self.run_rank(ranks, nodes, "jax_rank.py", *command)

    def test_collectives(self):
        self.run_cases(harness.amount([(1, 1), (3, 2)], [(1, 1), (2, 1), (2, 2), (4, 2)]), "collectives")

    def test_collectives_with_a_pool_of_one_thread(self):
        self.env["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
        self.env["NPROC"] = "1"
        self.run_cases([(2, 2)], "collectives")

    def test_several_devices_in_a_process_are_refused(self):
        self.env["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
        self.run_cases([(2, 1)], "collectives", "case_several_devices_are_refused")

    def test_derivatives_and_batches(self):
        self.run_cases(harness.amount([(3, 2)], [(1, 1), (2, 1), (3, 2)]), "transforms")

    def test_two_collectives_in_any_order(self):
        steps = harness.amount(1000, 10_000)
        self.env["RUEDA_JAX_STEPS"] = str(steps)
        self.env["RUEDA_JAX_LATE"] = os.path.join(BUILD, "lib", "librueda_test_late.so")
        path = os.path.join(self.folder, "timeline.json")
        self.run_rank(2, 2, "jax_rank.py", "order", flags=("--timeline-filename", path))
        # The test is one only if the order has changed, from step to step and between ranks.
        orders = self.orders(path, "first", "second")
        self.assertGreater(len(orders), 100)
        counts = collections.Counter(tuple(ranks) for ranks in orders)
        self.assertGreater(sum(count for ranks, count in counts.items() if ranks[0] != ranks[1]), len(orders) / 20, counts)
        self.assertGreater(sum(count for ranks, count in counts.items() if ranks[0]), len(orders) / 20, counts)

    def orders(self, path, first, second):
        """Returns for each step that the timeline has whole, whether rank 0 submitted `first` before `second`, and whether rank 1 did."""
        with open(path, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        tracks = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
        ready = collections.defaultdict(list)
        for event in events:
            found = re.match(r"ready (\d+)$", event["name"])
            if found:
                ready[tracks[event["pid"], event["tid"]], int(found.group(1))].append(event["ts"])
        columns = [sorted(ready[name, rank]) for rank in (0, 1) for name in (first, second)]
        return [(a < b, c < d) for a, b, c, d in zip(*columns)]

    def test_a_killed_rank_is_an_error_that_names_it(self):
        for nodes in (1, 2):
            with self.subTest(nodes=nodes):
                run = self.ruedarun("-np", "3", "--virtual-nodes", str(nodes), PYTHON, os.path.join(FOLDER, "jax_death_rank.py"), "killed")
                self.assertNotEqual(run.exit_code(), 0, run.output())
                for rank in (0, 2):
                    for where in ("in a program", "eagerly", "again"):
                        run.wait_for(rf"^\[{rank}\] caught -5 {where}: .*rank 1\b")

    def test_unequal_shapes_end_a_job_of_which_nobody_catches_the_error(self):
        run = self.ruedarun("-np", "3", "--virtual-nodes", "2", PYTHON, os.path.join(FOLDER, "jax_death_rank.py"), "unequal")
        self.assertNotEqual(run.exit_code(), 0, run.output())
        run.wait_for(r'RuntimeError: .*ranks disagree on tensor "tensor 4": shape is \[100000\] on rank \d and \[99999\] on rank 1')

    def test_a_rank_that_ends_with_a_collective_under_way_holds_nobody_up(self):
        for when in ("leaves", "leaves-early"):
            with self.subTest(when):
                run = self.ruedarun("-np", "3", "--virtual-nodes", "2", PYTHON, os.path.join(FOLDER, "jax_death_rank.py"), when)
                run.exit_code()
                for rank in (0, 2):
                    run.wait_for(rf"^\[{rank}\] caught -\d eagerly: .*rank 1\b")

    def test_jax_finds_the_job_by_itself(self):
        run = self.run_rank(3, 1, "jax_cluster_rank.py")
        for rank in range(3):
            run.wait_for(rf"^\[{rank}\] JAX: process {rank} of 3, 1 of 3 devices$")

    def test_the_example(self):
        if subprocess.run([PYTHON, "-c", "import sklearn"], capture_output=True, check=False).returncode != 0:
            self.skipTest("scikit-learn is not installed for this Python")
        run = self.ruedarun("-np", "2", "--virtual-nodes", "2", PYTHON, os.path.join(EXAMPLES, "jax_digits.py"), "--epochs", "10")
        self.assertEqual(run.exit_code(), 0, run.output())
        run.wait_for(r"rank 1 of 2: test accuracy 0\.9")

    def test_the_library_that_is_missing_is_named(self):
        self.env["RUEDA_JAX_LIBRARY"] = os.path.join(self.folder, "librueda_jax.so")
        program = ("import jax, jax.numpy as jnp, rueda.jax as hvd; hvd.init(); print(hvd.allreduce(jnp.ones(2)));"
                   "jax.jit(hvd.allreduce)(jnp.ones(2))")
        run = self.ruedarun("-np", "1", PYTHON, "-c", program, extra_env={"JAX_PLATFORMS": "cpu"})
        self.assertNotEqual(run.exit_code(), 0, run.output())
        run.wait_for(r"\[1\. 1\.\]")
        run.wait_for(r"ImportError: librueda_jax.so was not found, .*-DRUEDA_JAX_INCLUDE")


if __name__ == "__main__":
    harness.main()
