#!/usr/bin/python3
"""Tests batches in device memory between nodes, where the GPU adds up what arrives (`--gpu-adds yes`)."""

import harness
from device_harness import DeviceIntegrationTest
from harness import SLOWNESS

LOST_S = 4.0 * SLOWNESS
# Otherwise small tensors are exchanged, and a data loop adds them up.
RING = ("--algorithm", "ring")
HALVING_DOUBLING = ("--algorithm", "halving-doubling")


class DeviceAddsTest(DeviceIntegrationTest):
    adds = ("yes", "yes", "yes")  # the flag by node

    def start_daemons(self, *node_ids, plugin=None):
        return [self.start_daemon(node_id, "--gpu-plugin", plugin or self.plugin, "--gpu-adds", adds)
                for node_id, adds in zip(node_ids, self.adds)]

    def run_and_add(self, ranks, *scenarios, algorithm=RING, adding=3, extra=()):
        """Runs a job; `extra` has the launcher's flags. The first `adding` nodes have something to add."""
        self.run_between_nodes(ranks, *scenarios, extra=[*algorithm, *extra])
        for number, (daemon, adds) in enumerate(zip(self.daemons, self.adds)):
            self.assertEqual(daemon.metric("rueda_gpu_added_bytes_total") > 0, adds == "yes" and number < adding)
        self.stop_daemons()
        self.daemons.clear()

    def test_results_are_those_of_host_memory(self):
        self.run_and_add([1, 1], "same", "broadcast", "group")

    def test_several_ranks_of_several_nodes(self):
        self.run_and_add([2, 1, 1], "alike", "group", "rounded", extra=["--coordination", "negotiate"])

    def test_nodes_need_not_do_alike(self):
        self.adds = ("no", "yes")
        self.run_and_add([1, 1], "same", "group")

    def test_large_batches_go_in_rounds(self):
        self.run_and_add([2, 1], "large", "rounds")
        self.run_and_add([1, 1, 1], "rounds")

    def test_locked_schedules_that_are_left(self):
        self.run_and_add([2, 1], "mixed", "skipped", "late", "streams")

    def test_process_sets(self):
        self.run_and_add([2, 1, 1], "sets")

    def test_halving_doubling(self):
        self.run_and_add([1, 1], "same", "broadcast", "group", algorithm=HALVING_DOUBLING)
        # The third of three nodes hands its values to another.
        self.run_and_add([2, 1, 1], "alike", "large", "rounds", "rounded", "streams", algorithm=HALVING_DOUBLING, adding=2)

    def test_halving_doubling_in_locked_schedules_that_are_left_and_in_process_sets(self):
        self.run_and_add([2, 1, 1], "mixed", "skipped", "late", "sets", algorithm=HALVING_DOUBLING)

    def test_every_other_exchange(self):
        for algorithm, adding in (("recursive-doubling", 2), ("direct", 3), ("central", 1)):
            with self.subTest(algorithm):
                self.run_and_add([1, 1, 1], "same", "group", algorithm=("--algorithm", algorithm), adding=adding)

    def test_mpi_opt_adds_on_the_gpu(self):
        self.run_and_add([1, 1], "same", algorithm=("--preset", "mpi-opt"))

    def test_what_is_exchanged_because_it_is_small_is_added_by_a_data_loop(self):
        self.run_between_nodes([1, 1], "group")
        self.assertEqual(self.daemons[0].metric("rueda_gpu_added_bytes_total"), 0)

    def test_what_has_joined_is_added_by_a_data_loop(self):
        # A node whose ranks have joined has nothing on its GPU to add.
        self.run_between_nodes([1, 1], "joined_behind", extra=[*HALVING_DOUBLING, "--coordination", "negotiate"])

    def test_kill_of_anything_on_one_node_releases_the_streams_of_the_other(self):
        for victim in ("worker", "rank", "daemon"):
            with self.subTest(victim=victim):
                said = {"worker": "the GPU worker of job .* on node alpha.* was killed by signal 9",
                        "rank": r"^-5 .*\brank 0\b", "daemon": "alpha"}[victim]
                _, beta = self.kill_on_one_of_two_nodes(victim, "loop_in_rounds", said, LOST_S)
                self.assertGreater(beta.metric("rueda_gpu_added_bytes_total"), 0)
                self.stop_daemons()
                self.daemons.clear()


if __name__ == "__main__":
    harness.main()
