#!/usr/bin/python3
"""Tests one of two machines that have an RDMA network in common: tests/rdma/two_guests.sh runs this on both at the same time, with
their number, 1 or 2, in RUEDA_TEST_NUMBER. The second is killed in the middle of a job, and the first says when its ranks knew."""

import json
import os
import unittest

import harness
from harness import IntegrationTest, rank, wait_until

NUMBER = int(os.environ.get("RUEDA_TEST_NUMBER", "0"))
ADDRESS = os.environ.get("RUEDA_TEST_RDMA_ADDRESS", "")
SHARED = os.environ.get("RUEDA_TEST_SHARED", "")
TIMEOUT_MS = int(os.environ.get("RUEDA_TEST_TIMEOUT_MS", "10000"))
# The first machine's, where the launchers meet.
RENDEZVOUS = "10.77.0.1:29471"
RANKS = 2
PATIENCE_S = 120


def say(what):
    """Leaves a file of that name for the script that watches both machines."""
    with open(os.path.join(SHARED, f"{what}-{NUMBER}"), "w", encoding="utf-8"):
        pass


def is_said(what, number):
    return os.path.exists(os.path.join(SHARED, f"{what}-{number}"))


@unittest.skipUnless(NUMBER and ADDRESS and SHARED, "no second machine: tests/rdma/two_guests.sh runs this where there is")
class TwoGuestsTest(IntegrationTest):

    def start_here(self, *command):
        return self.ruedarun("-np", str(RANKS), "--nnodes", "2", "--node-rank", str(NUMBER - 1), "--rdzv-endpoint", RENDEZVOUS,
                             "--socket", self.daemons[0].socket, "--", *command)

    def assert_over_rdma(self, daemon):
        self.assertGreater(daemon.metric("rueda_rdma_channels_total"), 0, daemon.output())
        self.assertEqual(daemon.metric("rueda_rdma_fallbacks_total"), 0, daemon.output())

    def device_counters(self):
        """Returns what Soft-RoCE has counted: packets that came twice, out of order, or were sent again."""
        folder = "/sys/class/infiniband/rxe0/ports/1/hw_counters"
        return {name: harness.read_text(os.path.join(folder, name)).strip() for name in sorted(os.listdir(folder))}

    def tearDown(self):
        print(f"device: {self.device_counters()}", flush=True)
        super().tearDown()

    def reduce_right(self, daemon):
        path = os.path.join(self.folder, "bench.json")
        launcher = self.start_here(harness.program("rueda-bench"), "allreduce", "--sizes", "0,1e,4K,300K", "--dtype",
                                   "float32,bfloat16", "--iters", "2", "--json", path)
        self.assertEqual(launcher.exit_code(PATIENCE_S), 0, launcher.output())
        if NUMBER == 1:  # Rank 0 writes the file.
            with open(path, encoding="utf-8") as file:
                rows = [json.loads(line) for line in file]
            self.assertEqual([row["wrong"] for row in rows], [0] * 8)
        # All collectives, element by element, of kinds and sizes that follow from the seed.
        launcher = self.start_here(harness.program("integration_parts_rank"), "7", "20")
        self.assertEqual(launcher.exit_code(PATIENCE_S), 0, launcher.output())
        self.assert_over_rdma(daemon)

    def test_right_results_and_the_death_of_a_machine(self):
        daemon = self.start_daemon(f"guest{NUMBER}", "--transport", "rdma", "--failure-timeout", str(TIMEOUT_MS / 1000), host=ADDRESS)
        say("up")  # Launchers wait for each other for a minute, and a starved machine takes longer to start.
        self.assertTrue(wait_until(lambda: is_said("up", 3 - NUMBER), 2 * PATIENCE_S))
        self.reduce_right(daemon)
        say("right")
        launcher = self.start_here(*rank("init", "loop:20000"))
        launcher.wait_for(r"\] looping", RANKS, PATIENCE_S)
        say("looping")
        if NUMBER == 2:
            wait_until(lambda: not launcher.is_running(), PATIENCE_S)
            self.fail(f"this machine should have been killed:\n{launcher.output()}")
        lost = launcher.wait_for(r"error loop:\S+ (\S+) at (\S+): (.*)$", RANKS, PATIENCE_S)
        say("told")
        self.assertEqual({error.group(1) for error in lost}, {"RUEDA_ERR_NODE_LOST"})
        print(f"\ntold: {lost[0].group(0)}", flush=True)
        launcher.exit_code()
        self.assert_job_runs([daemon], [1])  # The daemon serves on.


if __name__ == "__main__":
    harness.main()
