#!/usr/bin/python3
"""Tests plans declared ahead, live, on two nodes with two ranks each, by the Python package."""

import json
import os
import signal

import harness
from harness import PYTHON, SOURCE, IntegrationTest

RANK = os.path.join(SOURCE, "tests", "integration", "ranks", "declaring_rank.py")
ABANDONED = "rueda_plans_abandoned_total"


class DeclaredPlanTest(IntegrationTest):

    def setUp(self):
        super().setUp()
        self.start_daemons("alpha", "beta")

    def start_ranks(self, *phases):
        self.job = self.start_job(self.daemons, [2, 2], [PYTHON, RANK, *phases])
        self.wait_for_phase(0)

    def wait_for_phase(self, number):
        for rank in range(4):
            self.job.wait_for(rank, f"^done {number}$")

    def go_on(self):
        for rank in range(4):
            os.kill(self.job.pid_of(rank), signal.SIGUSR1)

    def order_messages(self):
        return [daemon.metric("rueda_control_messages_total", 'kind="order"') for daemon in self.daemons]

    def metrics(self, name):
        return [daemon.metric(name) for daemon in self.daemons]

    def batches(self):
        run = self.start([harness.program("ruedactl"), "--socket", self.daemons[1].socket, "--json", "jobs", "--plan"])
        self.assertEqual(run.exit_code(), 0, run.output())
        [plan] = json.loads(run.output())["plans"]
        return [batch["tensors"] for batch in plan["batches"]]

    def test_it_is_in_force_from_the_first_step(self):
        """No message about order is sent from the first step on, and a tensor that comes after another one is in a later
        operation."""
        self.start_ranks("declare", "steps")
        self.assertEqual(self.metrics("rueda_locked"), [1, 1])
        before = self.order_messages()
        self.go_on()
        self.wait_for_phase(1)
        self.assertEqual(self.order_messages(), before)
        self.assertEqual(self.metrics(ABANDONED), [0, 0])
        self.assertEqual(self.batches(), [[f"layer{i}" for i in range(4)], [f"norm{i}" for i in range(3)]])
        self.go_on()
        self.assertEqual(self.job.exit_codes(), [0, 0], self.job.output())

    def test_one_that_is_wrong_is_reported_and_the_job_goes_on(self):
        """Without the order, gradients and norms are one operation, which would wait for ever for itself."""
        self.start_ranks("declare-without-order", "steps", "declare", "stray", "steps")
        self.assertEqual(self.batches(), [[f"layer{i}" for i in range(4)] + [f"norm{i}" for i in range(3)]])
        for phase, abandoned in enumerate([1, 1, 2, 2], 1):
            self.go_on()
            self.wait_for_phase(phase)
            self.assertEqual(self.metrics(ABANDONED), [abandoned, abandoned])
        self.go_on()
        self.assertEqual(self.job.exit_codes(), [0, 0], self.job.output())
        for daemon in self.daemons:
            self.assertRegex(daemon.output(), r"the declared plan is abandoned after 0 steps.*waits for tensor \"layer0\""
                                              r" and has not submitted \"norm0\".*each after those that it is computed from")
            self.assertRegex(daemon.output(), r"the declared plan is abandoned.*tensor \"stranger\" is not in the plan")


if __name__ == "__main__":
    harness.main()
