#!/usr/bin/python3
"""Tests join, live, on two nodes with two ranks each: uneven inputs in every mode, what is refused meanwhile, and locks after it.
"""

import os
import signal
import unittest

import harness
from harness import IntegrationTest, SANITIZED, by_rank, rank, wait_until

MODES = ("negotiate", "cached", "global-sleep", "nonblocking", "event-driven", "locked")
# The steps by rank: one node is done long before the other, one rank of each is, all are at once, and there is nothing at all.
UNEVEN = ("2,3,9,8", "20,6,7,21", "4,4,4,4", "0,0,0,5", "0,12,0,12")


class JoinTest(IntegrationTest):

    def setUp(self):
        super().setUp()
        self.start_daemons("alpha", "beta")

    def run_job(self, command, *flags):
        job = self.start_job(self.daemons, [2, 2], command, extra=flags)
        codes = job.exit_codes()
        return codes, job

    def test_uneven_inputs_in_every_mode(self):
        """Sums decode into who contributed; averages divide by all ranks. One job has several joins, and whole steps between
        them."""
        floats = 1000 if SANITIZED else 100_000
        actions = [action for steps in UNEVEN for action in (f"uneven:{steps}:{floats}", "steps:5:100")]
        for mode in MODES:
            codes, job = self.run_job(rank("init", *actions, "shutdown"), "--coordination", mode)
            self.assertEqual(codes, [0, 0], job.output())
            for steps in UNEVEN:
                counts = [int(count) for count in steps.split(",")]
                action = f"uneven:{steps}:{floats}"
                said = {line for number in range(4) for line in job.lines_of(number) if f" {action} " in line}
                self.assertEqual(len(said), 1, f"{mode}: {said}")
                last = int(said.pop().rsplit(" ", 1)[1])
                if len(set(counts)) > 1:  # the rank with most steps comes last
                    self.assertEqual(counts[last], max(counts), f"{mode}, {action}: rank {last}")
        for daemon in self.daemons:
            self.assertEqual(daemon.metric("rueda_job_failures_total"), 0)

    def test_a_lock_is_given_up_and_comes_again(self):
        actions = ["steps:20:100", "uneven:60,30,60,60:100", "steps:200:100"]
        job = self.start_job(self.daemons, [2, 2], rank("init", *actions, "pause", "shutdown"))
        for number in range(4):
            job.wait_for(number, "^pausing")
        self.assertTrue(wait_until(lambda: all(d.metric("rueda_locked") == 1 for d in self.daemons)))
        for daemon in self.daemons:
            daemon.wait_for("unlocked before operation .*rank 1 has joined")
        for number in range(4):
            os.kill(job.pid_of(number), signal.SIGUSR1)
        self.assertEqual(job.exit_codes(), [0, 0], job.output())

    def test_what_zeros_would_spoil_is_refused_and_the_job_goes_on(self):
        refused = ["reduce:smallest:float32:min:4", "reduce:product:float32:product:4", "broadcast:b:3:10",
                   "broadcast:c:0:10", "add_set:0,1"]
        going_on = ["reduce:s:float32:sum:4", "barrier:together"]
        others = rank("init", *refused, *going_on, "join", "steps:3:100", "shutdown")
        # Once all have joined, no rank counts as joined; rank 3 is to be refused before that.
        joins_last = rank("init", *refused, *going_on, "pause", "join", "steps:3:100", "shutdown")
        joins = rank("init", "join_async", "reduce:late:float32:sum:4", "join", "pause", "steps:3:100", "shutdown")
        job = self.start_job(self.daemons, [2, 2], by_rank({0: joins_last, 3: joins}, others))
        job.wait_for(3, "^pausing")
        job.wait_for(0, "^pausing")
        os.kill(job.pid_of(0), signal.SIGUSR1)
        self.assertRegex(job.output(), r"error reduce:late\S+ RUEDA_ERR_INVALID_ARGUMENT .*rank 3 has joined")
        self.assertRegex(job.output(), r"error join RUEDA_ERR_INVALID_ARGUMENT .*a second join: rank 3 has joined")
        for number in range(3):
            job.wait_for(number, "^ok join last")
            lines = "\n".join(job.lines_of(number))
            for action in refused:
                self.assertRegex(lines, rf"error {action} RUEDA_ERR_INVALID_ARGUMENT .*rank 3 has joined")
            for action in going_on:
                self.assertRegex(lines, rf"ok {action}")
        os.kill(job.pid_of(3), signal.SIGUSR1)
        self.assertEqual(job.exit_codes(), [0, 0], job.output())

    def test_a_rank_that_dies_after_it_has_joined_ends_the_job(self):
        job = self.start_job(self.daemons, [2, 2],
                             by_rank({1: rank("init", "join_async", "pause")},
                                     rank("init", "uneven:1000000,0,1000000,1000000:100")))
        job.wait_for(1, "^pausing")
        os.kill(job.pid_of(1), signal.SIGKILL)
        self.assertNotEqual(job.exit_codes(), [0, 0])
        job.wait_for(2, "error uneven:.* RUEDA_ERR_RANK_LOST .*rank 1")

    @unittest.skipIf(SANITIZED, "Python cannot load a sanitized library")
    def test_python(self):
        program = os.path.join(self.folder, "uneven.py")
        with open(program, "w", encoding="utf-8") as file:
            file.write("""
import numpy as np
import rueda
rueda.init()
for step in range(3 + rueda.rank()):
    total = rueda.allreduce(np.array([2.0 ** rueda.rank()]), "x", op=rueda.Sum)
    assert total[0] == sum(2.0 ** r for r in range(rueda.size()) if step < 3 + r), (step, total)
print("last", rueda.join(), flush=True)
rueda.shutdown()
""")
        codes, job = self.run_job([harness.PYTHON, program])
        self.assertEqual(codes, [0, 0], job.output())
        self.assertEqual(job.output().count("last 3"), 4, job.output())


if __name__ == "__main__":
    harness.main()
