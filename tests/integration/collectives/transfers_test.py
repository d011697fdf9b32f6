#!/usr/bin/python3
"""Tests sends and receives between ranks, live: on one node, on two and on three, and what becomes of them when a rank is missing."""

import os
import signal

import harness
from harness import PYTHON, SOURCE, IntegrationTest, wait_until

RANK = os.path.join(SOURCE, "tests", "integration", "ranks", "transfers_rank.py")
ALL = ("ring", "many", "any_source", "dtypes", "sets", "taken_back", "beside_a_lock")


def rank(*scenarios):
    return [PYTHON, RANK, *scenarios]


class TransfersTest(IntegrationTest):

    def run_job(self, ranks, *scenarios, extra=(), daemon_flags=()):
        daemons = self.start_daemons(*"abc"[:len(ranks)], arguments=daemon_flags)
        job = self.start_job(daemons, ranks, rank(*scenarios), extra)
        self.assertEqual(job.exit_codes(), [0] * len(ranks), job.output())
        return daemons, job

    def test_on_one_node(self):
        self.run_job([3], *ALL)

    def test_on_two_nodes(self):
        daemons, _ = self.run_job([2, 2], *ALL)
        for daemon in daemons:
            self.assertEqual(daemon.metric("rueda_job_failures_total"), 0)
            self.assertIn("locked from operation", daemon.output())
            self.assertNotRegex(daemon.output(), "unlocked before operation \\d+: (?!.*leaves the job)")

    def test_on_three_nodes_with_protected_data(self):
        self.run_job([1, 2, 1], "ring", "many", "any_source", daemon_flags=["--data-protection", "encrypt"])

    def test_a_rank_sends_to_itself(self):
        self.run_job([1], "ring", "many", "any_source")

    def expect_mismatches(self, *ranks):
        _, job = self.run_job(ranks, "mismatch")
        for number in range(2):
            for sent in (r"3 float32 \(12 bytes\)", r"2 float64 \(16 bytes\)"):
                job.wait_for(number, rf"^told .*rank 0 sends {sent} to rank 1, which receives 4 float32 \(16 bytes\)")

    def test_unlike_sizes_are_told_to_both_ranks_of_a_node(self):
        self.expect_mismatches(2)

    def test_unlike_sizes_are_told_to_the_ranks_of_two_nodes(self):
        self.expect_mismatches(1, 1)

    def test_a_rank_that_has_left_is_not_waited_for(self):
        self.run_job([2, 1], "left")

    def test_a_killed_peer_ends_the_wait(self):
        daemons = self.start_daemons("a", "b")
        job = self.start_job(daemons, [1, 1], rank("waits"))
        for number in range(2):
            job.wait_for(number, "^waiting")
        os.kill(job.pid_of(1), signal.SIGKILL)
        job.wait_for(0, "^told -5 .*rank 1")
        job.exit_codes()

    def test_a_stall_names_who_is_missing(self):
        daemons = self.start_daemons("a", "b", arguments=["--stall-check-seconds", "1"])
        job = self.start_job(daemons, [1, 1], rank("waits"))
        daemons[0].wait_for(r"rank 0 has waited \d+ s to receive 4 float32 \(16 bytes\) from rank 1 \(tag 77, process set 0\)")
        self.assertTrue(wait_until(lambda: daemons[0].metric("rueda_stalled_tensors") == 1))
        os.kill(job.pid_of(1), signal.SIGKILL)
        job.exit_codes()


if __name__ == "__main__":
    harness.main()
