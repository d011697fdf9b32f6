#!/usr/bin/python3
"""Tests a job whose nodes are a tree: eight daemons, of which none has more than two children.

     0
  1     2
 3 4   5 6
7"""

import os
import re
import signal
import time

import harness
from harness import SANITIZED, SLOWNESS, by_rank, rank, wait_until
from schedules import Schedule, ScheduleTest

NODES = 8
TREE = ["--tree-threshold", "4", "--tree-fan-in", "2", "--failure-timeout", "20"]
MODES = ("locked", "negotiate", "cached", "global-sleep", "nonblocking", "event-driven")
STEPS = 3 if SANITIZED else 10
# The deadline of the contract, from the death to the error in the other ranks' hands.
NODE_LOST_S = 5.0 * SLOWNESS


def linked(daemon):
    """Returns the nodes that a daemon has ever had a control connection with."""
    return set(re.findall(r"control connection with node (\S+) \(", daemon.output()))


class TreeTest(ScheduleTest):

    def setUp(self):
        super().setUp()
        self.start_daemons(*(f"node{i}" for i in range(NODES)), arguments=TREE)

    def test_sums_are_right_in_every_mode(self):
        for mode in MODES:
            with self.subTest(mode=mode):
                schedule = Schedule(self, self.daemons, [1] * NODES, "12x500", ["--coordination", mode])
                schedule.wait_for_tensors(STEPS * 12)
                if mode == "locked":
                    schedule.wait_until_locked()
                    schedule.deviate("skip", 7)
                    schedule.wait_for_deviations()
                schedule.stop()
        self.assertEqual(linked(self.daemons[0]), {"node1", "node2"})
        self.assertEqual(linked(self.daemons[1]), {"node0", "node3", "node4"})
        self.assertEqual(linked(self.daemons[7]), {"node3"})

    def test_the_coordinator_hears_each_child_once_a_step(self):
        """Once the schedule is locked the coordinator hears nothing."""
        daemon = self.daemons[0]

        def received():
            return daemon.metric("rueda_control_messages_total", 'kind="order"', 'direction="received"')

        schedule = Schedule(self, self.daemons, [1] * NODES, "12x500", ["--coordination", "locked"])
        schedule.wait_until_locked()
        before = self.order_messages()
        schedule.wait_for_tensors(STEPS * 12)
        self.assertEqual(self.order_messages() - before, 0, schedule.describe_daemons())
        schedule.stop()
        reduces = [f"reduce:t{i % 3}:float32:sum:4" for i in range(20)]
        all_steps = rank("init", "steps:20:1000", "shutdown")
        # The rank at the bottom has joined: the reports of the others are combined all the same.
        joins = by_rank({7: rank("init", "join", "shutdown")}, rank("init", *reduces, "join", "shutdown"))
        for command, tensors in ((all_steps, 20), (joins, 20 + 1)):
            before = received()
            job = self.start_job(self.daemons, [1] * NODES, command, ["--coordination", "negotiate"])
            self.assertEqual(job.exit_codes(), [0] * NODES, job.output())
            self.assertLessEqual(received() - before, 2 * tensors, "one message a child and a tensor")

    def test_ranks_join_wherever_they_are_in_every_mode(self):
        """With uneven inputs, sums decode into who contributed. Inner nodes, leaves, a whole branch and the coordinator are done
        first; steps of all ranks come between, with as few messages as ever."""
        uneven = ("9,2,8,3,7,1,8,5", "3,9,9,9,9,9,9,9", "6,6,6,6,6,6,6,6", "5,0,7,0,0,4,6,0", "1,2,1,12,1,1,1,7")
        actions = [action for steps in uneven for action in (f"uneven:{steps}:1000", "steps:3:100")]
        for mode in MODES:
            with self.subTest(mode=mode):
                job = self.start_job(self.daemons, [1] * NODES, rank("init", *actions, "shutdown"),
                                     ["--coordination", mode])
                self.assertEqual(job.exit_codes(), [0] * NODES, job.output())
                for steps in uneven:
                    said = set(re.findall(rf"ok uneven:{steps}:1000 last (\d)", job.output()))
                    self.assertEqual(len(said), 1, job.output())
                    counts = [int(count) for count in steps.split(",")]
                    if len(set(counts)) > 1:  # the rank with most steps comes last
                        self.assertEqual(counts[int(said.pop())], max(counts), f"{mode}, {steps}")
        for daemon in self.daemons:
            self.assertEqual(daemon.metric("rueda_job_failures_total"), 0)

    def test_a_node_within_the_tree_that_dies_is_named_everywhere(self):
        job = self.start_job(self.daemons, [1] * NODES, rank("init", "loop:20000"))
        for number in range(NODES):
            job.wait_for(number, "^looping")
        killed_s = time.monotonic()
        self.daemons[1].send(signal.SIGKILL)
        for number in range(NODES):
            if number == 1:
                continue
            error = job.wait_for(number, r"^error loop:\S+ (\S+) at (\S+): (.*)$")
            self.assertRegex(error.group(3), r"\bnode1\b", f"rank {number}")
            self.assertLess(float(error.group(2)) - killed_s, NODE_LOST_S, error.group(0))
        self.assertNotIn(0, job.exit_codes(), job.output())

    def test_a_rank_below_that_dies_is_named_everywhere(self):
        job = self.start_job(self.daemons, [1] * NODES, rank("init", "loop:20000"))
        for number in range(NODES):
            job.wait_for(number, "^looping")
        os.kill(job.pid_of(7), signal.SIGKILL)
        for number in range(NODES - 1):
            error = job.wait_for(number, r"^error loop:\S+ (\S+) at (\S+): (.*)$")
            self.assertRegex(f"{error.group(1)} {error.group(3)}", r"RUEDA_ERR_RANK_LOST .*\brank 7\b")
        self.assertNotIn(0, job.exit_codes(), job.output())

    def test_a_node_that_leaves_hands_its_children_over(self):
        """The node's daemon stops while others go on with a process set."""
        begin = ["init", "add_set:0,3,4,7", "steps:2:100"]
        going_on = rank(*begin, "pause", "reduce_in:1:w", "reduce_in:1:x", "shutdown")
        command = by_rank({1: rank(*begin, "shutdown"), 0: going_on, 3: going_on, 4: going_on, 7: going_on},
                          rank(*begin, "pause", "shutdown"))
        job = self.start_job(self.daemons, [1] * NODES, command)
        self.assertEqual(job.launchers[1].exit_code(), 0, job.output())
        others = [number for number in range(NODES) if number != 1]
        for number in others:
            job.wait_for(number, "^pausing")
        self.daemons[1].send(signal.SIGTERM)
        self.assertEqual(self.daemons[1].exit_code(), 0, self.daemons[1].output())
        self.assertTrue({"node3", "node4"} <= linked(self.daemons[0]), self.daemons[0].output())
        for number in others:
            os.kill(job.pid_of(number), signal.SIGUSR1)
        self.assertEqual([job.launchers[number].exit_code() for number in others], [0] * len(others),
                         job.output())
        self.assertEqual(job.output().count("ok reduce_in:1:x"), 4, job.output())

    def test_daemons_that_were_told_different_trees_say_so(self):
        stranger = self.start_daemon("stranger", "--tree-threshold", "4", "--tree-fan-in", "3")
        daemons = self.daemons[:NODES - 1] + [stranger]
        job = self.start_job(daemons, [1] * NODES, rank("init"))
        self.assertNotIn(0, job.exit_codes(), job.output())
        self.assertRegex(job.output(), r"has for ruedad --tree-fan-in 2 on node \S+ and 3 on node stranger; give it the same value on all nodes")
        self.assertNotIn("did not start within", job.output())

    def test_who_comes_late_to_a_node_within_the_tree_that_has_gone_hears_who_died(self):
        """A rank of the node hears it, and so does a rank of a node below; no rank of both nodes had come before."""
        late = rank("pause", "init")
        job = self.start_job(self.daemons, [1] * NODES, by_rank({1: rank("exit:3"), 3: late, 7: late}, rank("init")))
        for number in (3, 7):
            job.wait_for(number, "^pausing")
        self.assertEqual(job.launchers[1].exit_code(), 3, job.output())
        wait_until(lambda: self.daemons[1].metric("rueda_jobs") == 0)
        os.kill(job.pid_of(7), signal.SIGUSR1)
        for number in range(NODES):
            if number in (1, 3):
                continue
            error = job.wait_for(number, r"^error init (\S+) at \S+: (.*)$")
            self.assertRegex(f"{error.group(1)} {error.group(2)}", r"RUEDA_ERR_RANK_LOST .*\brank 1 ")
        self.assertNotIn(0, job.exit_codes(), job.output())


if __name__ == "__main__":
    harness.main()
