#!/usr/bin/python3
"""Process sets, live, on two nodes with two ranks each: overlapping sets at once, what goes wrong with them, and
how an operator sees them."""

import json
import os
import signal

import harness
from harness import IntegrationTest, rank


class ProcessSetsTest(IntegrationTest):

    def setUp(self):
        super().setUp()
        self.start_daemons("alpha", "beta")

    def run_job(self, *actions):
        job = self.start_job(self.daemons, [2, 2], rank("init", *actions, "shutdown"))
        codes = job.exit_codes()
        return codes, job.output()

    def test_overlapping_sets_at_once(self):
        """Sums decode into who contributed; sets of both nodes, of one, and of the second node alone."""
        codes, output = self.run_job("sets:60", "steps:3:1000", "sets:5")
        self.assertEqual(codes, [0, 0], output)
        self.assertEqual(output.count("ok sets:60"), 4, output)
        for daemon in self.daemons:
            self.assertEqual(daemon.metric("rueda_job_failures_total"), 0)

    def test_what_cannot_be_is_said_on_every_rank_and_the_job_goes_on(self):
        cases = [("add_set:0,1", r"ok add_set:0,1 is 1 of 2"),
                 ("add_set:1,0", r"INVALID_ARGUMENT.*exists already: it is process set 1"),
                 ("add_set:2,2", r"INVALID_ARGUMENT.*lists rank 2 twice"),
                 ("add_set:3,4", r"INVALID_ARGUMENT.*has rank 4, and the job has ranks 0 to 3"),
                 ("add_set:none", r"INVALID_ARGUMENT.*needs at least one rank"),
                 ("remove_set:9", r"NOT_FOUND.*process set 9 does not exist"),
                 ("remove_set:0", r"INVALID_ARGUMENT.*cannot be removed"),
                 ("remove_set:1", r"ok remove_set:1"),
                 ("reduce_in:1:x", r"NOT_FOUND.*process set 1 has been removed")]
        codes, output = self.run_job(*(action for action, _ in cases), "steps:2:100")
        self.assertEqual(codes, [0, 0], output)
        for action, line in cases:
            said = [text for text in output.splitlines() if f" {action} " in f"{text} "]
            self.assertEqual(len(said), 4, output)
            for text in said:
                self.assertRegex(text, line)

    def test_an_operator_sees_them(self):
        job = self.start_job(self.daemons, [2, 2],
                             rank("init", "add_set:0,2,3", "pause", "remove_set:1", "shutdown"))
        for number in range(4):
            job.wait_for(number, "^pausing")
        for daemon in self.daemons:
            self.assertEqual(daemon.metric("rueda_process_sets"), 1)
            run = self.start([harness.program("ruedactl"), "--socket", daemon.socket, "--json", "jobs"])
            self.assertEqual(run.exit_code(), 0, run.output())
            [shown] = json.loads(run.output())["jobs"]
            self.assertEqual(shown["process_sets"], [{"id": 1, "ranks": [0, 2, 3], "locked": False}])
        for number in range(4):
            os.kill(job.pid_of(number), signal.SIGUSR1)
        self.assertEqual(job.exit_codes(), [0, 0], job.output())


if __name__ == "__main__":
    harness.main()
