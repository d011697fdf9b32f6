#!/usr/bin/python3
"""Tests a rank that dies while the others wait for its gradients."""

import os
import subprocess
import unittest

import harness
from harness import SLOWNESS, IntegrationTest

FOLDER = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.environ.get("RUEDA_TEST_PYTHON", harness.PYTHON)  # as in distributed_test.py
HAS_TORCH = subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode == 0


@unittest.skipUnless(HAS_TORCH, "PyTorch is not installed (deploy/packages.sh test installs it)")
class TorchDeathTest(IntegrationTest):

    def run_until_death(self, how, nodes):
        path = os.path.join(self.folder, "died")
        program = os.path.join(FOLDER, "torch_death_rank.py")
        run = self.ruedarun("-np", "4", "--virtual-nodes", str(nodes), PYTHON, program, path, how)
        self.assertNotEqual(run.exit_code(), 0, run.output())
        for rank in (0, 1, 3):
            found, = run.wait_for(rf"^\[{rank}\] caught after ([0-9.]+) s: .*rank 2\b")
            self.assertLess(float(found.group(1)), 2 * SLOWNESS, run.output())
        return run

    def test_a_death_is_an_error_that_names_the_rank(self):
        self.run_until_death("training", nodes=2)

    def test_a_death_while_all_others_sit_in_synchronize(self):
        for nodes in (1, 2):
            with self.subTest(nodes=nodes):
                run = self.run_until_death("synchronize", nodes)
                run.wait_for(r"^\[2\] all others wait: True; done: False")

    def test_an_error_in_backward_ends_the_process_and_the_job(self):
        """PyTorch 1.13 frees the graph when Python has ended: memory that asked for Python's lock then hung for ever."""
        cases = [("one_backward_too_many", "backward_passes_per_step"), ("a_hook_of_the_users", "no number"), ("in_ddp", "no number")]
        for how, error in cases[:harness.amount(1, 3)]:
            with self.subTest(how):
                run = self.ruedarun("-np", "2", "--virtual-nodes", "2", PYTHON, os.path.join(FOLDER, "torch_raises.py"), how)
                self.assertNotEqual(run.exit_code(), 0, run.output())
                self.assertRegex(run.output(), rf"\[1\] \w+Error: .*{error}")


if __name__ == "__main__":
    harness.main()
