#!/usr/bin/python3
"""Tests that a network of PyTorch's is locked at its first step, without a declaration in the script, and that no message about order
is sent from there on."""

import os
import signal
import subprocess
import unittest

import harness
from harness import IntegrationTest

FOLDER = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.environ.get("RUEDA_TEST_PYTHON", harness.PYTHON)
HAS_TORCHVISION = subprocess.run([PYTHON, "-c", "import torchvision"], capture_output=True, check=False).returncode == 0


@unittest.skipUnless(HAS_TORCHVISION, "torchvision is not installed (deploy/packages.sh bench installs it)")
class FirstStepTest(IntegrationTest):

    def setUp(self):
        super().setUp()
        self.start_daemons("alpha", "beta")

    def start_ranks(self, steps):
        self.job = self.start_job(self.daemons, [1, 1], [PYTHON, os.path.join(FOLDER, "first_step_rank.py"), str(steps)])
        self.wait_for_phase(0)

    def wait_for_phase(self, number):
        for rank in range(2):
            self.job.wait_for(rank, f"^done {number}$")

    def go_on(self):
        for rank in range(2):
            os.kill(self.job.pid_of(rank), signal.SIGUSR1)

    def messages_of_a_step(self, number):
        """Makes the next step. Returns how many messages about order each daemon has sent in it."""
        before = self.order_messages()
        self.go_on()
        self.wait_for_phase(number)
        return [after - count for after, count in zip(self.order_messages(), before)]

    def order_messages(self):
        return [daemon.metric("rueda_control_messages_total", 'kind="order"') for daemon in self.daemons]

    def is_locked(self):
        return [daemon.metric("rueda_locked") for daemon in self.daemons]

    def finish(self):
        self.go_on()
        self.assertEqual(self.job.exit_codes(), [0, 0], self.job.output())

    def test_resnet50_is_locked_at_its_first_step(self):
        self.start_ranks(4)
        self.assertEqual(self.is_locked(), [0, 0])
        first = self.messages_of_a_step(1)
        self.assertEqual(self.is_locked(), [1, 1])
        # What is sent is the declaration (a report one way, the plan and that it is agreed on the other), and that the last broadcast
        # has ended. 161 gradients that are reported take more.
        self.assertLessEqual(max(first), 4, first)
        for step in range(2, 5):
            self.assertEqual(self.messages_of_a_step(step), [0, 0])
        for daemon in self.daemons:
            self.assertEqual(daemon.metric("rueda_plans_abandoned_total"), 0)
            self.assertRegex(daemon.output(), "locked as declared from operation .*: 161 tensors a step")
        self.finish()

    def test_it_is_learned_where_declaring_is_switched_off(self):
        self.env["RUEDA_TORCH_DECLARE"] = "0"
        self.start_ranks(1)
        self.assertGreater(max(self.messages_of_a_step(1)), 10)
        self.assertEqual(self.is_locked(), [0, 0])
        self.finish()


if __name__ == "__main__":
    harness.main()
