#!/usr/bin/python3
"""Tests the modes with a cycle, live: their results are right, their rounds are a cycle time apart, and the other modes have none.

Rounds are counted by the daemons. A loop of one small tensor wants a round for each step, so it has as many rounds as the cycle lets it
have."""

import os
import signal
import time

import harness
from harness import IntegrationTest, SLOWNESS, rank, wait_until

CYCLE_MODES = ("cached", "global-sleep", "nonblocking")
ROUNDS = "rueda_order_rounds_total"
LONG_MS = 50
# So many rounds of the short cycle must take less time than half as many of the long one would.
SHORT_MS = "0.5"
MANY = 40


class CycleTest(IntegrationTest):

    def setUp(self):
        super().setUp()
        self.start_daemons("alpha", "beta")

    def rounds(self):
        return self.daemons[1].metric(ROUNDS)

    def loop(self, flags, variables=None):
        job = self.start_job(self.daemons, [2, 1], rank("init", "loop:64"), flags, extra_env=variables or {})
        for number in range(3):
            job.wait_for(number, "^looping")
        return job

    def end(self, job):
        for launcher in job.launchers:
            launcher.send(signal.SIGTERM)
        job.exit_codes()

    def test_the_cycle_time_is_in_force(self):
        for mode in CYCLE_MODES:
            with self.subTest(mode=mode):
                job = self.loop(["--coordination", mode, "--cycle-time-ms", str(LONG_MS)])
                begin_s, before = time.monotonic(), self.rounds()
                self.assertTrue(wait_until(lambda: self.rounds() >= before + 6), job.output())
                rounds, took_s = self.rounds() - before, time.monotonic() - begin_s
                self.assertLessEqual(rounds, took_s * 1e3 / LONG_MS + 1, "rounds are at least a cycle apart")
                self.end(job)
                job = self.loop(["--coordination", mode], {"RUEDA_CYCLE_TIME": SHORT_MS})
                begin_s, before = time.monotonic(), self.rounds()
                self.assertTrue(wait_until(lambda: self.rounds() >= before + MANY), job.output())
                self.assertLess(time.monotonic() - begin_s, SLOWNESS * MANY / 2 * LONG_MS / 1e3, "the cycle is short")
                self.end(job)

    def test_results_are_right_whatever_the_cycle(self):
        """Each step is checked by the ranks."""
        for mode in CYCLE_MODES:
            for flags in (["--cycle-time-ms", "0.01"], ["--cycle-time-ms", "7", "--sleep-agreed-every", "3"]):
                with self.subTest(mode=mode, flags=flags):
                    job = self.start_job(self.daemons, [2, 1], rank("init", "steps:20:3000", "uneven:2,7,4:500", "shutdown"),
                                         ["--coordination", mode, *flags])
                    self.assertEqual(job.exit_codes(), [0, 0], job.output())

    def test_modes_without_a_cycle_have_no_rounds_and_say_so(self):
        for mode in ("negotiate", "event-driven", "locked"):
            with self.subTest(mode=mode):
                job = self.start_job(self.daemons, [2, 1], rank("init", "steps:20:64", "pause", "shutdown"),
                                     ["--coordination", mode, "--cycle-time-ms", "5"])
                for number in range(3):
                    job.wait_for(number, "^pausing")
                self.assertEqual(self.rounds(), 0)
                for number in range(3):
                    os.kill(job.pid_of(number), signal.SIGUSR1)
                self.assertEqual(job.exit_codes(), [0, 0], job.output())
                self.assertIn(f"mode {mode} has no cycle: give --coordination cached, global-sleep or nonblocking",
                              self.daemons[0].output())

    def test_horovods_variable_is_taken_where_there_is_a_cycle(self):
        for flags, answer in ((["--preset", "horovod"], "HOROVOD_CYCLE_TIME=2.5 is taken as RUEDA_CYCLE_TIME=2.5"),
                              (["--coordination", "locked"],
                               "HOROVOD_CYCLE_TIME is not used: there is no cycle: what is ready goes at once")):
            with self.subTest(flags=flags):
                job = self.start_job(self.daemons, [1, 1], rank("init", "steps:3:64", "shutdown"), flags,
                                     extra_env={"HOROVOD_CYCLE_TIME": "2.5"})
                self.assertEqual(job.exit_codes(), [0, 0], job.output())
                self.assertIn(answer, job.output())

    def test_a_cycle_out_of_bounds_is_refused_with_the_bounds(self):
        for value in ("0", "0.001", "1001", "soon"):
            job = self.start_job(self.daemons[:1], [1], rank("init"), ["--cycle-time-ms", value])
            self.assertEqual(job.exit_codes(), [2], job.output())
            self.assertIn("--cycle-time-ms", job.output())


if __name__ == "__main__":
    harness.main()
