#!/usr/bin/python3
"""Tests --algorithm direct, live, on three nodes and on four: every node adds up a part of each all-reduce, as a server of that part,
and sends it to all others."""

import json
import os
import signal

import harness
from harness import IntegrationTest, rank

OPERATIONS = harness.amount(60, 300, 40)
STEPS = 20
ELEMENTS = 50_001  # of float32; four nodes have parts that differ
FLAGS = ("--algorithm", "direct")


class DirectTest(IntegrationTest):

    def setUp(self):
        super().setUp()
        self.start_daemons("alpha", "beta", "gamma", "delta")

    def run_job(self, ranks, command, *flags):
        job = self.start_job(self.daemons[:len(ranks)], ranks, command, extra=(*FLAGS, *flags))
        self.assertEqual(job.exit_codes(), [0] * len(ranks), job.output())
        return job

    def told(self, ranks, seed, *flags):
        """Returns the hashes of the results of random collectives, each of which has been compared element by element."""
        job = self.run_job(ranks, [harness.program("integration_parts_rank"), str(seed), str(OPERATIONS)], *flags)
        lines = [[line for line in job.lines_of(number) if line.startswith("ok ")] for number in range(sum(ranks))]
        self.assertTrue(all(len(said) == 1 for said in lines), job.output())
        return lines

    def test_every_collective_gives_the_right_values_and_the_same_bits_twice(self):
        for seed, ranks in enumerate(([2, 1, 1], [1, 1, 1, 1])):
            with self.subTest(ranks=ranks):
                self.assertEqual(self.told(ranks, seed), self.told(ranks, seed))

    def test_by_device(self):
        self.told([2, 1, 1], 7, "--reducer", "device")

    def test_sizes_that_do_not_divide(self):
        sizes = (1, 2, 3, 5, 6, 7, 1023, 40_003, 131_071, 1_000_001)
        for ranks in ([1, 1, 1], [1, 1, 1, 1]):
            with self.subTest(ranks=ranks):
                self.run_job(ranks, rank("init", *(f"steps:2:{size}" for size in sizes), "shutdown"))

    def sent_by(self, daemon):
        """Returns the bytes of data that a daemon has sent to each other node."""
        run = self.start([harness.program("ruedactl"), "--socket", daemon.socket, "--json", "peers"])
        self.assertEqual(run.exit_code(), 0, run.output())
        return {peer["node_id"]: int(peer["data_bytes_sent"]) for peer in json.loads(run.output())["peers"]}

    def test_every_node_sends_a_part_to_each_other_node(self):
        """In a ring, a node would send everything to the next one."""
        job = self.start_job(self.daemons, [1, 1, 1, 1], rank("init", f"steps:{STEPS}:{ELEMENTS}", "pause", "shutdown"), extra=FLAGS)
        for number in range(4):
            job.wait_for(number, "^pausing")
        least = STEPS * 2 * (ELEMENTS // 4) * 4  # a part that is to be added up there, and one that has been added up here
        # A daemon lists the nodes to which it has a control connection: the coordinator's lists all, any other's the coordinator.
        sent = [self.sent_by(daemon) for daemon in self.daemons]
        self.assertEqual(set(sent[0]), {daemon.node_id for daemon in self.daemons[1:]})
        for bytes_to in sent:
            self.assertGreaterEqual(min(bytes_to.values()), least, sent)
        for number in range(4):
            os.kill(job.pid_of(number), signal.SIGUSR1)
        self.assertEqual(job.exit_codes(), [0] * 4, job.output())


if __name__ == "__main__":
    harness.main()
