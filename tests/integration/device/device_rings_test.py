#!/usr/bin/python3
"""Tests device memory where each rank is a member of the ring (`--reducer device`): a ring of the GPUs of all nodes, in one step."""

import harness
from device_harness import DeviceIntegrationTest, device_rank
from harness import SLOWNESS

LOST_S = 4.0 * SLOWNESS
BY_DEVICE = ("--reducer", "device")


class DeviceRingsTest(DeviceIntegrationTest):
    adds = "no"  # --gpu-adds

    def start_daemons(self, *node_ids, plugin=None):
        return [self.start_daemon(node_id, "--gpu-plugin", plugin or self.plugin, "--gpu-adds", self.adds) for node_id in node_ids]

    def run_by_device(self, ranks, *scenarios, extra=()):
        self.run_between_nodes(ranks, *scenarios, extra=[*BY_DEVICE, *extra])
        for daemon in self.daemons:
            self.assertEqual(daemon.metric("rueda_gpu_added_bytes_total") > 0, self.adds == "yes")
        self.stop_daemons()
        self.daemons.clear()

    def test_one_node_alone_needs_no_ring(self):
        """Its GPU worker has all ranks' memory. Such jobs stood still: their batches went between nodes, of which there are none."""
        # Of more ranks, the ring in host memory adds in another order than the GPU.
        for ranks, results in ((2, "same"), (3, "alike")):
            daemon, _ = self.run_job(ranks, results, "broadcast", "group", extra=BY_DEVICE)
            self.assertEqual(daemon.metric("rueda_gpu_staged_bytes_total"), 0)
            self.stop_daemons()
            self.daemons.clear()

    def test_results_are_those_of_host_memory(self):
        self.run_by_device([1, 1], "same", "broadcast", "group")
        self.run_by_device([2, 2], "same", "broadcast", "group")

    def test_nodes_with_different_numbers_of_ranks(self):
        self.run_by_device([2, 1], "same", "alike", "broadcast", "group", "rounded")
        self.run_by_device([1, 3, 1], "alike", "broadcast", "group", extra=["--coordination", "negotiate"])

    def test_large_batches_go_in_rounds(self):
        self.run_by_device([2, 1], "large", "rounds")
        self.run_by_device([2, 2], "rounds", extra=["--coordination", "negotiate"])

    def test_streams_and_locked_schedules_that_are_left(self):
        self.run_by_device([2, 2], "streams", "ahead", "crossed", "skipped", "mixed", "late")

    def test_who_joins_behind_a_stream_gives_what_it_has_submitted(self):
        self.run_by_device([2, 1], "joined_behind")

    def test_process_sets(self):
        self.run_by_device([2, 1, 1], "sets")

    def test_rows_of_all_ranks_that_are_too_large_are_an_error_that_names_the_flag(self):
        """By node the two ranks' tensor would fit."""
        arguments = ["--gpu-plugin", self.plugin, "--gpu-staging-bytes", "4M"]
        daemons = harness.IntegrationTest.start_daemons(self, "alpha", "beta", arguments=arguments)
        job = self.start_job(daemons, [2, 1], device_rank("too_large"), BY_DEVICE)
        for number in range(2):
            self.assertRegex(job.wait_for(number, "^error (.*)$").group(1), "8388608 bytes.*raise --gpu-staging-bytes")
        job.exit_codes()

    def test_a_step_that_is_declared(self):
        self.run_between_nodes([2, 1], "declared", extra=BY_DEVICE)
        for daemon in self.daemons:
            self.assertRegex(daemon.output(), "locked as declared from operation .*: 5 tensors a step")

    def test_the_gpu_may_add(self):
        self.adds = "yes"
        self.run_by_device([2, 1], "same", "group", "rounds", extra=["--algorithm", "ring"])
        self.run_by_device([2, 2], "alike", "rounds", extra=["--algorithm", "halving-doubling"])

    def test_presets_with_such_a_ring(self):
        for preset in ("baidu", "horovod", "cambridge-1step"):
            with self.subTest(preset):
                self.run_between_nodes([2, 1], "same", "broadcast", "group", extra=["--preset", preset])
                self.stop_daemons()
                self.daemons.clear()

    def test_kill_of_anything_on_one_node_releases_the_streams_of_the_other(self):
        for victim in ("worker", "rank", "daemon"):
            with self.subTest(victim=victim):
                said = {"worker": "the GPU worker of job .* on node alpha.* was killed by signal 9",
                        "rank": r"^-5 .*\brank 0\b", "daemon": "alpha"}[victim]
                self.kill_on_one_of_two_nodes(victim, "loop_in_rounds", said, LOST_S, extra=BY_DEVICE)
                self.stop_daemons()
                self.daemons.clear()


if __name__ == "__main__":
    harness.main()
