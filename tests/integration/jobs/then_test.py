#!/usr/bin/python3
"""Tests that ranks are told of the ends of their operations by callbacks (rueda_then): of each once, whatever becomes of the job."""

import os
import signal

import harness
from harness import SANITIZED, IntegrationTest, by_rank, rank

TIMES = 300 if SANITIZED else 10_000


class ThenTest(IntegrationTest):

    def start_told(self, *after):
        """Starts a job on two nodes in which all ranks are told of operations that rank 3 never submits, and returns it, with its
        daemons, when they have submitted them."""
        daemons = self.start_daemons("alpha", "beta")
        told = rank("init", "then:1:10:1000", "told:a:1000", "told:b:5", *after)
        job = self.start_job(daemons, [2, 2], by_rank({3: rank("init", "then:1:10:1000", "pause")}, told))
        for number in range(3):
            job.wait_for(number, "^ok told:b:5")
        job.wait_for(3, "^pausing")
        return job, daemons

    def assert_told_once(self, job, number, pattern):
        for name in "ab":
            job.wait_for(number, rf"^told {name} {pattern}")
            self.assertEqual(sum(line.startswith(f"told {name} ") for line in job.lines_of(number)), 1, job.output())

    def test_each_end_begins_the_next_operation(self):
        daemons = self.start_daemons("alpha", "beta")
        job = self.start_job(daemons, [2, 2], rank("init", f"then:1:{TIMES}:10", f"then:8:{TIMES // 20}:5000", "shutdown"))
        self.assertEqual(job.exit_codes(300), [0, 0], job.output())

    def test_callbacks_and_waits_in_turn(self):
        daemons = self.start_daemons("alpha", "beta")
        job = self.start_job(daemons, [2, 1], rank("init", *["then:3:20:1000", "steps:20:1000"] * 5, "shutdown"))
        self.assertEqual(job.exit_codes(), [0, 0], job.output())

    def test_in_one_session_after_another(self):
        daemons = self.start_daemons("alpha", "beta")
        job = self.start_job(daemons, [2, 2], rank(*["init", "then:2:20:1000", "shutdown"] * 5))
        self.assertEqual(job.exit_codes(), [0, 0], job.output())

    def test_a_rank_that_dies_is_named(self):
        job, _ = self.start_told("pause", "shutdown")
        os.kill(job.pid_of(3), signal.SIGKILL)
        for number in range(3):
            self.assert_told_once(job, number, r"RUEDA_ERR_RANK_LOST: .*\brank 3\b")

    def test_the_daemons_death(self):
        job, daemons = self.start_told("pause", "shutdown")
        daemons[0].send(signal.SIGKILL)
        for number in range(2):
            self.assert_told_once(job, number, "RUEDA_ERR_DAEMON_LOST: ")
        self.assert_told_once(job, 2, r"RUEDA_ERR_NODE_LOST: ")

    def test_a_rank_that_leaves_is_told_of_what_it_has_left(self):
        """The first one to leave ends the job, which the others may hear before they have waited as long. All are told before
        rueda_shutdown returns."""
        job, _ = self.start_told("shutdown", "pause")
        for number in range(3):
            job.wait_for(number, "^pausing")
            self.assert_told_once(job, number, "RUEDA_ERR_(SHUT_DOWN|RANK_LOST): ")
            self.assertRegex(job.lines_of(number)[-2], "^(ok|error) shutdown", job.output())
        self.assertRegex(job.output(), "error shutdown RUEDA_ERR_TIMEOUT .* 2 operations were still in flight")


if __name__ == "__main__":
    harness.main()
