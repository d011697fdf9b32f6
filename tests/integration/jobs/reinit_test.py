#!/usr/bin/python3
"""Tests ranks that leave their job and join it again, many times in one process."""

import harness
from harness import SANITIZED, IntegrationTest, rank, wait_until

ROUNDS = 5 if SANITIZED else 20


class ReinitTest(IntegrationTest):

    def test_init_and_shutdown_again_and_again(self):
        daemons = self.start_daemons("alpha", "beta")
        self.assert_job_runs(daemons, [2, 2])
        wait_until(lambda: all(one.metric("rueda_jobs") == 0 for one in daemons))
        held = [one.held_at_rest() for one in daemons]
        job = self.start_job(daemons, [2, 2], rank(*["init", "steps:2:5000", "shutdown"] * ROUNDS))
        self.assertEqual(job.exit_codes(), [0, 0], job.output())
        for number in range(4):
            said = job.lines_of(number)
            for action in ("ok init", "ok steps:2:5000", "ok shutdown"):
                self.assertEqual(said.count(action), ROUNDS, f"rank {number}: {action}")
            self.assertFalse([line for line in said if line.startswith("error")])
        for daemon, before in zip(daemons, held):
            wait_until(lambda d=daemon, b=before: d.metric("rueda_jobs") == 0 and d.held() == b, 10)
            self.assertEqual(daemon.held(), before)
            self.assertEqual(daemon.metric("rueda_job_failures_total"), 0, daemon.output())

    def test_leaving_without_a_word(self):
        """A process that ends with nothing in flight has left as if it had said goodbye."""
        daemons = self.start_daemons("alpha", "beta")
        job = self.start_job(daemons, [2, 2], rank("init", "steps:2:5000", "barrier:end", "exit:0"))
        self.assertEqual(job.exit_codes(), [0, 0], job.output())
        for daemon in daemons:
            self.assertEqual(daemon.metric("rueda_job_failures_total"), 0, daemon.output())


if __name__ == "__main__":
    harness.main()
