#!/usr/bin/python3
"""Tests tensors in device memory that NCCL carries between nodes (`--inter-node nccl`): results, process sets, streams, and what
follows when a worker, a rank or a daemon dies. On the fake GPU communicators are the fake's."""

import harness
from device_harness import IS_REAL, DeviceIntegrationTest, device_rank, needs_fake
from harness import SLOWNESS, wait_until

# The daemon waits for the end of a worker that is lost, so that nothing touches memory when the ranks are told.
LOST_S = 4.0 * SLOWNESS
NCCL = ["--inter-node", "nccl"]


class DeviceNcclTest(DeviceIntegrationTest):
    tree = ()

    def start_daemon(self, node_id, *arguments, **where):
        # NCCL refuses two members of one host on one GPU.
        self.env["NCCL_HOSTID"] = node_id
        return super().start_daemon(node_id, *arguments, *self.tree, **where)

    def run_by_nccl(self, ranks, *scenarios, extra=()):
        names = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta")
        daemons = self.start_daemons(*names[:len(ranks)])
        job = self.start_job(daemons, ranks, device_rank(*scenarios), [*NCCL, *extra])
        codes = job.exit_codes()
        self.assertEqual(codes, [0] * len(ranks), job.output() + "".join(daemon.output() for daemon in daemons))
        for daemon in daemons:
            self.assertGreater(daemon.metric("rueda_gpu_nccl_bytes_total"), 0)
            # These scenarios have all dtypes, and so some that NCCL has no reduction for.
            has_others = any(scenario in ("same", "alike") for scenario in scenarios)
            self.assertEqual(daemon.metric("rueda_gpu_staged_bytes_total") > 0, has_others)
            self.assertTrue(wait_until(lambda d=daemon: d.metric("rueda_gpu_workers") == 0, 10))
            for name in ("rueda_gpu_memories", "rueda_gpu_worker_losses_total", "rueda_gpu_nccl_communicators"):
                self.assertEqual(daemon.metric(name), 0, name)
        self.stop_daemons()
        self.daemons.clear()
        return job

    def test_results_are_those_of_host_memory(self):
        self.run_by_nccl([1, 1], "same" if not IS_REAL else "alike", "broadcast", "group")

    def test_several_ranks_of_several_nodes(self):
        self.run_by_nccl([2, 1], "alike", "broadcast", "group", "rounded")
        # The reducer is for host memory then.
        self.run_by_nccl([2, 1], "alike", "broadcast", "group", extra=["--reducer", "device"])

    def test_three_nodes_and_an_order_that_is_negotiated(self):
        self.run_by_nccl([1, 2, 1], "alike", "broadcast", "streams", extra=["--coordination", "negotiate"])

    def test_streams_wait_for_other_nodes(self):
        self.run_by_nccl([2, 2], "streams", "crossed", "skipped", "late")

    def test_host_memory_is_locked_beside_it(self):
        for mode in ("locked", "negotiate"):
            self.run_by_nccl([2, 1], "mixed", "grouped_beside_a_lock", extra=["--coordination", mode])

    def test_large_batches_and_memory_that_comes_again(self):
        self.run_by_nccl([1, 1], "recycle", "mismatch", "large", "rounds")

    def test_process_sets_have_communicators_of_their_own(self):
        self.run_by_nccl([2, 1, 1], "sets")

    def test_ids_go_up_and_down_a_tree_of_nodes(self):
        self.tree = ["--tree-threshold", "2", "--tree-fan-in", "2"]
        # NCCL does not like many processes on one GPU.
        self.run_by_nccl([1] * (3 if IS_REAL else 7), "sets", "alike")

    def test_more_process_sets_than_nccl_may_have_is_an_error_with_the_remedy(self):
        daemons = self.start_daemons("alpha", "beta")
        job = self.start_job(daemons, [2, 2], device_rank("too_many_sets"), NCCL)
        for number in range(4):
            self.assertRegex(job.wait_for(number, "^error (.*)$").group(1),
                             "more than 8 process sets of several nodes.*--inter-node rueda")
        job.exit_codes()

    def test_a_rank_that_has_joined_is_an_error_with_the_remedy_and_the_job_goes_on(self):
        job = self.run_by_nccl([1, 1], "joined")
        self.assertRegex(job.wait_for(0, "^error (.*)$").group(1),
                         'rank 1 has joined, and NCCL needs something of every rank; .*--inter-node rueda')

    def test_what_nccl_carries_is_in_no_declared_plan(self):
        job = self.run_by_nccl([1, 1], "declared")
        for number in range(2):
            self.assertRegex(job.wait_for(number, "^error (.*)$").group(1),
                             'tensor "one" goes by NCCL, whose operations no plan has.*without --inter-node nccl')

    def test_a_batch_that_waits_for_another_nodes_stream_is_told_and_waited_for(self):
        alpha, beta = self.start_daemons("alpha", "beta")
        job = self.start_job([alpha, beta], [1, 1], device_rank("late_stream"), [*NCCL, "--stall-check-seconds", "1"])
        self.assertEqual(job.exit_codes(), [0, 0], job.output() + alpha.output())
        for daemon in (alpha, beta):
            self.assertEqual(daemon.metric("rueda_gpu_nccl_waits_total"), 1)
            self.assertRegex(daemon.output(), 'job .*: 1 tensors from "late" on, in device memory of process set 0, have '
                                              "been under way through NCCL for .* ms")

    def test_a_job_of_one_node_has_no_use_for_it(self):
        daemon, _ = self.run_job(2, "group", extra=NCCL)
        self.assertEqual(daemon.metric("rueda_gpu_nccl_bytes_total"), 0)

    def test_nodes_that_were_told_differently_are_refused(self):
        alpha, = self.start_daemons("alpha")
        beta = self.start_daemon("beta", "--gpu-plugin", self.plugin, *NCCL)
        job = self.start_job([alpha, beta], [1, 1], device_rank("group"))
        self.assertNotEqual(job.exit_codes(), [0, 0])
        self.assertRegex(job.output(), 'has for --inter-node rueda on node alpha and nccl on node beta; give it the same value on all nodes')

    @needs_fake
    def test_a_node_without_nccl_ends_the_job_with_the_reason(self):
        for without in ("alpha", "beta"):
            daemons = []
            for node in ("alpha", "beta"):
                if node == without:
                    self.env["RUEDA_FAKE_NCCL"] = "none"
                daemons += self.start_daemons(node)
                self.env.pop("RUEDA_FAKE_NCCL", None)
            job = self.start_job(daemons, [1, 1], device_rank("one"), NCCL)
            for number in range(2):
                self.assertRegex(job.wait_for(number, "^error (.*)$").group(1), "this fake GPU has no communicators")
            job.exit_codes()
            self.stop_daemons()
            self.daemons.clear()

    def test_kill_of_anything_on_one_node_releases_the_streams_of_the_other(self):
        for victim in ("worker", "rank", "daemon"):
            with self.subTest(victim=victim):
                # A rank that loses a member hears of it at once, perhaps before the news of the reason.
                said = {"worker": "the GPU worker of job .* (was killed by signal 9|has ended: )",
                        "rank": r"^-5 .*\brank 0\b|^-6 .*has ended: ", "daemon": "alpha|has ended: "}[victim]
                alpha, beta = self.kill_on_one_of_two_nodes(victim, "loop", said, LOST_S, NCCL)
                self.assertEqual(beta.metric("rueda_gpu_nccl_communicators"), 0)
                if victim != "daemon":
                    again = self.start_job([alpha, beta], [1, 1], device_rank("group"), NCCL)
                    self.assertEqual(again.exit_codes(), [0, 0], again.output())
                self.stop_daemons()
                self.daemons.clear()


if __name__ == "__main__":
    harness.main()
