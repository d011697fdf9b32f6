#!/usr/bin/python3
"""Tests all collectives, live: random ones, compared element by element, on one node and on several with unequal numbers of
ranks; the same bits on a second run; and disagreements of ranks."""

import os
import unittest

import harness
from harness import IntegrationTest, SANITIZED, rank

NODES = ([1], [4], [1, 1], [2, 2], [3, 1], [1, 2, 1], [2, 3, 1, 2])
OPERATIONS = harness.amount(150, 300, 60)


class CollectivesTest(IntegrationTest):

    def run_job(self, ranks, command, *flags):
        job = self.start_job(self.daemons[:len(ranks)], ranks, command, extra=flags)
        codes = job.exit_codes()
        self.assertEqual(codes, [0] * len(ranks), job.output())
        return job

    def said(self, ranks, seed, *flags):
        command = [harness.program("integration_parts_rank"), str(seed), str(OPERATIONS)]
        job = self.run_job(ranks, command, *flags)
        return [[line for line in job.lines_of(number) if line.startswith("ok ")] for number in range(sum(ranks))]

    def test_every_collective_gives_the_right_values_and_the_same_bits_twice(self):
        self.start_daemons("alpha", "beta", "gamma", "delta")
        for seed, ranks in enumerate(NODES):
            first = self.said(ranks, seed)
            self.assertTrue(all(len(lines) == 1 for lines in first), first)
            self.assertEqual(self.said(ranks, seed), first)
        for daemon in self.daemons:
            self.assertEqual(daemon.metric("rueda_job_failures_total"), 0)

    def test_in_every_mode_of_coordination(self):
        self.start_daemons("alpha", "beta")
        told = [self.said([2, 1], 77, "--coordination", mode)
                for mode in ("negotiate", "cached", "global-sleep", "nonblocking", "event-driven", "locked")]
        self.assertTrue(all(lines == told[0] for lines in told), told)

    def test_by_device(self):
        """Each rank is a member of the ring by itself, and everything that a node does for its ranks goes round the ring, too."""
        self.start_daemons("alpha", "beta", "gamma", "delta")
        for seed, ranks in enumerate(NODES):
            first = self.said(ranks, seed, "--reducer", "device")
            self.assertTrue(all(len(lines) == 1 for lines in first), first)
            self.assertEqual(self.said(ranks, seed, "--reducer", "device"), first)
        for daemon in self.daemons:
            self.assertEqual(daemon.metric("rueda_job_failures_total"), 0)

    def test_whatever_data_loops_nodes_have_the_bits_are_the_same(self):
        told = []
        for i, loops in enumerate(([0, 0, 0], [1, 1, 1], [3, 3, 3], [2, 0, 3])):
            self.stop_daemons()
            self.daemons.clear()
            for j, count in enumerate(loops):
                self.start_daemon(f"node{i}{j}", f"--data-loops={count}")
            told.append(self.said([2, 1, 1], 5))
        self.assertTrue(all(lines == told[0] for lines in told), told)

    def test_another_reducer_on_another_node_is_refused(self):
        daemons = [self.start_daemons("alpha")[0],
                   self.start_daemons("beta", arguments=["--reducer", "device"])[0]]
        job = self.start_job(daemons, [1, 1], rank("init"))
        self.assertNotIn(0, job.exit_codes())
        self.assertIn("has for --reducer node on node alpha and device on node beta", job.output())

    @unittest.skipIf(SANITIZED, "Python cannot load a sanitized library")
    def test_python(self):
        self.start_daemons("alpha", "beta")
        program = os.path.join(harness.RANKS, "parts_rank.py")
        job = self.run_job([2, 2], [harness.PYTHON, program])
        for number in range(4):
            self.assertIn("ok", job.lines_of(number), job.output())


if __name__ == "__main__":
    harness.main()
