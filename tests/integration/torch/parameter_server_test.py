#!/usr/bin/python3
"""Tests the example of parameter servers: synchronous training is one process's, whatever the numbers of workers and servers and
the transport; asynchronous training waits for nobody, and learns; and each goes the way that the example says."""

import os
import re
import subprocess
import unittest

import harness
from harness import PYTHON, SOURCE, IntegrationTest, needs_long_tier

EXAMPLE = [PYTHON, os.path.join(SOURCE, "client", "python", "examples", "torch_parameter_server.py")]
HAS_TORCH = subprocess.run([PYTHON, "-c", "import torch, sklearn"], capture_output=True, check=False).returncode == 0
STEPS = 12 * 23  # of a worker: the epochs, and the batches of an epoch
VECTOR_BYTES = 8 * 3658  # of all weights, or of a gradient


@unittest.skipUnless(HAS_TORCH, "PyTorch is not installed (deploy/packages.sh test installs it)")
class ParameterServerTest(IntegrationTest):

    def train(self, workers, servers, *arguments, nodes=2, transport="tcp"):
        """Returns the daemons, whose counters begin with the job, and what the ranks said."""
        daemons = self.start_daemons(*(f"node{len(self.daemons) + i}" for i in range(nodes)),
                                     arguments=("--transport", transport))
        ranks = workers + servers
        counts = [ranks // nodes + (node < ranks % nodes) for node in range(nodes)]
        # Without a choice made ahead, nodes would measure the network first, which sends megabytes, too.
        job = self.start_job(daemons, counts, [*EXAMPLE, "--servers", str(servers), *arguments], extra=("--algorithm", "ring"))
        self.assertEqual(job.exit_codes(), [0] * nodes, job.output())
        output = job.output()
        found = re.search(rf"{workers} workers and {servers} servers: accuracy (\d\.\d+)", output)
        self.assertGreater(float(found.group(1)), 0.9, output)
        return daemons, output

    def equals_one_process(self, *numbers, **how):
        daemons, output = self.train(*numbers, "--check-reference", **how)
        difference = re.search(r"difference to the weights of one process: (\S+)", output)
        self.assertLess(float(difference.group(1)), 1e-12, output)
        # Gradients and weights of workers are where the daemon reads and writes them.
        copied = [int(text) for text in re.findall(r"worker \d+ has copied (\d+) bytes", output)]
        self.assertEqual(len(copied), numbers[0], output)
        self.assertLess(max(copied), VECTOR_BYTES, output)
        return daemons

    def waits_for_nobody(self, workers, servers, *arguments, **how):
        """Returns the daemons, and the greatest staleness on each server."""
        daemons, output = self.train(workers, servers, "--asynchronous", *arguments, **how)
        told = re.findall(r"server \d+: (\d+) gradients, staleness at most (\d+), mean (\S+)", output)
        self.assertEqual([int(count) for count, _, _ in told], [workers * STEPS] * servers, output)
        for _, _, mean in told:
            # What is applied between two gradients of a worker makes the second one stale. So a worker's staleness adds up to at
            # most all gradients of the others.
            self.assertLessEqual(float(mean), workers - 1, output)
        return daemons, [int(most) for _, most, _ in told]

    def sent(self, daemons):
        return sum(daemon.metric("rueda_network_sent_bytes_total") for daemon in daemons)

    def test_three_workers_and_two_servers_equal_one_process(self):
        # Three workers are on the first node, and both servers on the second one.
        daemons = self.equals_one_process(3, 2)
        # One push a step goes from node to node, not one of each worker; and a pull goes back.
        self.assertGreaterEqual(daemons[0].metric("rueda_network_sent_bytes_total"), STEPS * VECTOR_BYTES)
        self.assertGreaterEqual(daemons[1].metric("rueda_network_sent_bytes_total"), STEPS * VECTOR_BYTES)
        self.assertLess(self.sent(daemons), 3 * STEPS * VECTOR_BYTES)

    def test_two_workers_and_one_server_equal_one_process_over_grpc(self):
        daemons = self.equals_one_process(2, 1, transport="grpc")
        self.assertGreater(daemons[0].metric("rueda_network_sent_bytes_total", 'transport="grpc"'), STEPS * VECTOR_BYTES)

    def test_a_late_worker_keeps_nobody_waiting(self):
        """The last worker begins when the other two have ended."""
        daemons, most = self.waits_for_nobody(3, 2, "--late-worker")
        self.assertEqual(most, [2 * STEPS] * 2)
        # Each step of each worker sends a gradient to the servers, on the other node, and weights back. Weights of all ranks travel at
        # the beginning and at the end alone.
        pushed_and_pulled = 2 * 3 * STEPS * VECTOR_BYTES
        self.assertGreaterEqual(self.sent(daemons), pushed_and_pulled)
        self.assertLess(self.sent(daemons), pushed_and_pulled + STEPS * VECTOR_BYTES / 10)

    def test_a_job_of_servers_alone_is_refused(self):
        run = self.ruedarun("-np", "1", *EXAMPLE)
        self.assertEqual(run.exit_code(), 2, run.output())
        self.assertIn("--servers 1 of 1 ranks: it takes a server and a worker at least", run.output())

    @needs_long_tier
    def test_any_numbers_of_workers_and_servers_equal_one_process(self):
        for workers, servers, nodes in ((1, 1, 1), (1, 4, 2), (2, 3, 3), (6, 1, 2)):
            with self.subTest(workers=workers, servers=servers, nodes=nodes):
                self.equals_one_process(workers, servers, nodes=nodes)

    @needs_long_tier
    def test_workers_push_whenever_they_are_ready(self):
        for workers, servers, nodes in ((2, 1, 1), (3, 2, 2), (6, 2, 3), (1, 2, 2)):
            with self.subTest(workers=workers, servers=servers, nodes=nodes):
                _, most = self.waits_for_nobody(workers, servers, nodes=nodes)
                if workers == 1:
                    self.assertEqual(most, [0] * servers)
                else:
                    self.assertGreater(min(most), 0)


if __name__ == "__main__":
    harness.main()
