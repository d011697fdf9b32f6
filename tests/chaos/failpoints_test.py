#!/usr/bin/python3
"""Daemons die at each step by which the nodes of an elastic job agree on its next generation (ElasticJob::at_step), and everybody
takes part again."""

import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[0:0] = [os.path.join(HERE, "..", "integration", "support"), os.path.join(HERE, "..", "integration", "torch")]

import harness  # noqa: E402
from elastic_support import FOLDER, HAS_TORCH, LONG, PATIENCE_S, PYTHON, ElasticCase  # noqa: E402
from harness import wait_until  # noqa: E402

# The step, and how often a daemon has come to it when it dies: some are there when the job begins, too.
OF_THE_COORDINATOR = (("ended", 1), ("votes-changed", 2), ("votes-kept", 2), ("heard-sent", 1), ("prepare-sent", 1), ("accept-sent", 1),
                      ("learn-sent", 1), ("decided", 2), ("begun", 2), ("started", 2))
OF_ANOTHER = (("ended", 1), ("votes-changed", 2), ("votes-kept", 2), ("present-sent", 1), ("promise-sent", 1), ("accepted-sent", 1),
              ("decided", 2), ("begun", 2), ("started", 2))
ALL = [(0, *step) for step in OF_THE_COORDINATOR] + [(1, *step) for step in OF_ANOTHER]
WITH_EACH_CHANGE = ((0, "accept-sent", 1), (1, "votes-kept", 2), (0, "learn-sent", 1))


@unittest.skipUnless(HAS_TORCH, "PyTorch is not installed (deploy/packages.sh test installs it)")
class FailpointsTest(ElasticCase):

    def forget(self):
        for name in os.listdir(self.folder):
            if name.startswith("born") or name in ("stop", "died"):
                os.remove(os.path.join(self.folder, name))

    def test_a_daemon_may_die_at_any_step(self):
        for node, step, count in harness.amount(WITH_EACH_CHANGE, ALL):
            with self.subTest(node=node, step=step, count=count):
                self.forget()
                self.die_at(node, step, count)

    def die_at(self, node, step, count):
        died = os.path.join(self.folder, "died")
        run = self.start([
            # Where it dies it makes a file, which no daemon in its sandbox may.
            "env", "RUEDAD_SANDBOX=no", f"{harness.FAULT}=dies:node{node}:{step}:{count}:{died}", harness.program("ruedarun"), "--ruedad",
            harness.program(harness.FAULTY_RUEDAD), "-np", "3", "--virtual-nodes", "3", "--min-np", "1", "--failure-timeout", "1", "env", "-C",
            self.folder, PYTHON, os.path.join(FOLDER, "elastic_rank.py"), str(LONG)
        ])
        self.kill_in_step(run, 2, 11)
        self.assertTrue(wait_until(lambda: os.path.exists(died), PATIENCE_S), f"node{node} never came to {step}:\n{run.output()}")
        seen = [len(self.lines_of(run, slot)) for slot in range(3)]
        self.wait_while_it_runs(run, lambda: all(any(" of 3 " in line for line in self.lines_of(run, slot)[seen[slot]:])
                                                 for slot in range(3)))
        self.end()
        self.assert_trained(run, (0, 1, 2))
        self.assertEqual([len(self.pids_of(run, slot)) for slot in range(3)], [1, 1, 2], run.output())


if __name__ == "__main__":
    harness.main()
