#!/usr/bin/python3
"""Tests batches in device memory between nodes, where the GPU adds up what arrives (`--gpu-adds yes`)."""

import re

import harness
from device_harness import DeviceIntegrationTest, needs_fake
from harness import SLOWNESS

LOST_S = 4.0 * SLOWNESS
# Otherwise small tensors are exchanged, and a data loop adds them up.
RING = ("--algorithm", "ring")
HALVING_DOUBLING = ("--algorithm", "halving-doubling")


class DeviceAddsTest(DeviceIntegrationTest):
    adds = ("yes", "yes", "yes")  # the flag by node
    card = None  # "reads-gpu": network cards read a GPU's memory
    direct = "auto"  # --gpu-direct

    def start_daemons(self, *node_ids, plugin=None):
        return [self.start_daemon(node_id, "--gpu-plugin", plugin or self.plugin, "--gpu-adds", adds, "--gpu-direct", self.direct,
                                  fault=self.card)
                for node_id, adds in zip(node_ids, self.adds)]

    def expect_read(self, is_expected):
        for daemon in self.daemons:
            self.assertEqual(daemon.metric("rueda_network_input_bytes_total", 'from="gpu"') > 0, is_expected)

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

    @needs_fake
    def test_what_a_node_begins_to_send_is_read_by_the_network_card(self):
        self.card = "reads-gpu"
        self.run_between_nodes([1, 1], "same", extra=RING)
        self.expect_read(True)
        for daemon in self.daemons:  # It was copied, too, until the daemon knew that it is read.
            read = daemon.metric("rueda_network_input_bytes_total", 'from="gpu"')
            self.assertLess(daemon.metric("rueda_gpu_copied_bytes_total"), 0.1 * read)

    @needs_fake
    def test_it_is_read_of_rounds_of_staging_that_grows_and_of_what_is_cancelled(self):
        self.card = "reads-gpu"
        for ranks, scenarios, extra in (([2, 1], ("large", "rounds", "group", "rounded"), ()),
                                        ([1, 1, 1], ("rounds", "skipped", "streams"), ()),
                                        ([2, 1], ("same", "rounds"), ("--reducer", "device"))):
            with self.subTest(ranks=ranks, scenarios=scenarios):
                self.run_between_nodes(ranks, *scenarios, extra=[*RING, *extra])
                self.expect_read(True)
                self.stop_daemons()
                self.daemons.clear()

    @needs_fake
    def test_it_is_copied_where_that_is_wanted_or_the_channel_is_over_tcp(self):
        for self.card, self.direct, why in (("reads-gpu", "no", None), (None, "auto", "over tcp send from the host|the channel is over TCP")):
            with self.subTest(card=self.card):
                self.run_between_nodes([1, 1], "same", extra=RING)
                self.expect_read(False)
                for daemon in self.daemons:
                    said = re.findall("what a GPU has for other nodes is copied to host memory first: (.*)", daemon.output())
                    self.assertEqual(len(said), 1 if why else 0, daemon.output())
                    self.assertTrue(not why or re.search(why, said[0]), said)
                self.stop_daemons()
                self.daemons.clear()

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
