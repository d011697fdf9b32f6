#!/usr/bin/python3
"""Tests Adasum, live, through NumPy: against the formula, with the same bits on all ranks, however the job is run."""

import os

import harness
from harness import IntegrationTest, PYTHON

RANK = os.path.join(harness.RANKS, "adasum_rank.py")


class AdasumTest(IntegrationTest):

    def run_job(self, ranks, *flags):
        """Returns what every rank found, which is the same on all."""
        job = self.start_job(self.daemons[:len(ranks)], ranks, [PYTHON, RANK, ",".join(map(str, ranks))], extra=flags)
        self.assertEqual(job.exit_codes(), [0] * len(ranks), job.output())
        said = {line for number in range(sum(ranks)) for line in job.lines_of(number) if line.startswith("ok ")}
        self.assertEqual(len(said), 1, said)

    def test_on_one_node_and_on_several(self):
        self.start_daemons("alpha", "beta", "gamma")
        for ranks in ([1], [2], [4], [1, 1], [2, 2], [3, 1], [1, 2, 1]):
            with self.subTest(ranks=ranks):
                self.run_job(ranks)
        for daemon in self.daemons:
            self.assertEqual(daemon.metric("rueda_job_failures_total"), 0)

    def test_in_every_mode_of_coordination(self):
        self.start_daemons("alpha", "beta")
        for mode in ("negotiate", "cached", "global-sleep", "nonblocking", "event-driven", "locked"):
            with self.subTest(mode=mode):
                self.run_job([2, 1], "--coordination", mode)

    def test_by_device(self):
        """Each rank is a member of the ring by itself; the ranks of a node still meet first."""
        self.start_daemons("alpha", "beta")
        for ranks in ([3], [3, 1]):
            with self.subTest(ranks=ranks):
                self.run_job(ranks, "--reducer", "device")

    def test_with_several_data_loops(self):
        for node in ("alpha", "beta"):
            self.start_daemon(node, "--data-loops=3")
        self.run_job([1, 2])


if __name__ == "__main__":
    harness.main()
