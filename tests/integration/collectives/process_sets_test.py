#!/usr/bin/python3
"""Tests process sets, live, on two nodes with two ranks each: overlapping sets at once, what goes wrong with them, and how an
operator sees them."""

import json
import os
import signal

import harness
from harness import IntegrationTest, by_rank, rank


class ProcessSetsTest(IntegrationTest):

    def setUp(self):
        super().setUp()
        self.start_daemons("alpha", "beta")

    def run_job(self, *actions):
        job = self.start_job(self.daemons, [2, 2], rank("init", *actions, "shutdown"))
        codes = job.exit_codes()
        return codes, job.output()

    def test_overlapping_sets_at_once(self):
        """Sums decode into who contributed. There are sets of both nodes, of one, and of the second node alone."""
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
                 ("add_set:none", r"ok add_set:none is 2 of 0"),
                 ("reduce_in:2:x", r"INVALID_ARGUMENT.*rank \d is not in process set 2"),
                 ("remove_set:2", r"ok remove_set:2"),
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

    def ruedactl(self, daemon, *arguments):
        run = self.start([harness.program("ruedactl"), "--socket", daemon.socket, *arguments])
        self.assertEqual(run.exit_code(), 0, run.output())
        return run.output()

    def wake(self, job):
        for number in range(4):
            job.wait_for(number, "^pausing")
            os.kill(job.pid_of(number), signal.SIGUSR1)
        self.assertEqual(job.exit_codes(), [0, 0], job.output())

    def test_an_operator_sees_the_plan_of_a_set(self):
        """Only the set has a plan, because it is locked on its own."""
        work = ["reduce_in:1:x"] * 10
        ends = ["pause", "remove_set:1", "shutdown"]
        job = self.start_job(self.daemons, [2, 2], by_rank(
            {number: rank("init", "add_set:1,2", *work, *ends) for number in (1, 2)},
            rank("init", "add_set:1,2", *ends)))
        for number in range(4):
            job.wait_for(number, "^pausing")
        for daemon in self.daemons:
            self.assertEqual(daemon.metric("rueda_locked"), 0)
            self.assertEqual(daemon.metric("rueda_locked_process_sets"), 1)
            [plan] = json.loads(self.ruedactl(daemon, "--json", "jobs", "--plan"))["plans"]
            self.assertEqual((plan["process_set"], plan["ranks"]), (1, [1, 2]))
            self.assertEqual([batch["tensors"] for batch in plan["batches"]], [["x"]])
            self.assertRegex(self.ruedactl(daemon, "jobs", "--plan"), r"(?m)^job-\w+ +1 +1 end +start +allreduce ")
        self.wake(job)

    def test_a_tensor_in_the_wrong_set_is_pointed_out(self):
        """Rank 3 submits to the set of ranks 2 and 3 what the others reduce among all."""
        ends = ["barrier:end", "shutdown"]
        job = self.start_job(self.daemons, [2, 2], by_rank(
            {2: rank("init", "add_set:2,3", "submit:grad:100", "pause", "reduce_in:1:grad", *ends),
             3: rank("init", "add_set:2,3", "submit:grad:1:1", "pause", "reduce:grad:float32:average:100", *ends)},
            rank("init", "add_set:2,3", "submit:grad:100", "pause", *ends)),
            extra_env={"RUEDA_STALL_CHECK_TIME_SECONDS": "1"})
        for daemon in self.daemons:
            daemon.wait_for(r'tensor "grad" was submitted \d+ s ago by ranks 0-2, and not by rank 3 on node beta '
                            r'\(last submitted "grad" in process set 1 .*; has this name in flight in process set 1\)')
            if daemon.node_id == "beta":
                daemon.wait_for(r'tensor "grad" of process set 1 was submitted \d+ s ago by rank 3, and not by rank 2 '
                                r"on node beta .* has this name in flight in the set of all ranks\)")
            stalls = {stall["process_set"]: stall["missing_ranks"][0]
                      for stall in json.loads(self.ruedactl(daemon, "--json", "stalls"))["stalls"]}
            self.assertEqual((stalls[0]["rank"], stalls[0]["other_process_sets"]), (3, [1]))
            self.assertEqual(stalls[0]["last_submitted_process_set"], 1)
            if daemon.node_id == "beta":
                self.assertEqual((stalls[1]["rank"], stalls[1]["other_process_sets"]), (2, [0]))
        self.wake(job)


if __name__ == "__main__":
    harness.main()
