#!/usr/bin/python3
"""Tests tensors in the memory of a GPU, which ranks and the job's GPU worker share as processes: results, order with streams,
memory that is freed, and what follows when one of them dies."""

import os
import re
import signal
import time

import harness
from device_harness import IS_REAL, DeviceIntegrationTest, device_rank, needs_fake
from harness import PATIENCE_S, SLOWNESS, wait_until

RANK_LOST_S = 2.0 * SLOWNESS
# The daemon waits for the end of a worker that is lost, so that nothing touches memory when the ranks are told.
WORKER_LOST_S = 4.0 * SLOWNESS
# A driver keeps this much for itself, or gives it back a little later.
MEMORY_NOISE = 64 << 20 if IS_REAL else 0


class DeviceTest(DeviceIntegrationTest):

    def test_results_are_those_of_host_memory(self):
        for ranks in harness.amount([3], [2, 3]):
            daemon, _ = self.run_job(ranks, "same", "broadcast")
            self.assertGreater(daemon.metric("rueda_gpu_submissions_total"), 0)
            self.assertTrue(wait_until(lambda d=daemon: d.metric("rueda_gpu_workers") == 0, 10))
            self.assertEqual(daemon.metric("rueda_gpu_memories"), 0)
            self.assertEqual(daemon.metric("rueda_gpu_worker_losses_total"), 0)
            self.stop_daemons()
            self.daemons.clear()

    def test_workers_of_one_user_are_bounded_and_given_back(self):
        daemon = self.start_daemon("alpha", "--gpu-plugin", self.plugin, "--quota-gpu-workers", "1")
        first = self.start_job([daemon], [1], device_rank("loop"))
        first.wait_for(0, "^looping")
        second = self.start_job([daemon], [1], device_rank("same"))
        self.assertNotEqual(second.exit_codes(), [0])
        self.assertRegex(second.output(), r"user \d+ has 1 GPU workers here and wants 1 more, and may have 1: .*--quota-gpu-workers")
        os.kill(first.pid_of(0), signal.SIGKILL)
        first.exit_codes()
        third = self.start_job([daemon], [1], device_rank("same"))
        self.assertEqual(third.exit_codes(), [0], third.output() + daemon.output())

    def test_one_rank_alone(self):
        self.run_job(1, "same", "broadcast", "streams")

    def test_groups_and_many_tensors_of_one_allocation(self):
        self.run_job(2, "group")

    def test_streams_wait_for_each_other_without_the_host(self):
        for mode in harness.amount(["locked"], ["locked", "negotiate"]):
            self.run_job(2, "streams", "ahead", extra=["--coordination", mode])
            self.stop_daemons()
            self.daemons.clear()

    def test_who_joins_behind_a_stream_gives_what_it_has_submitted(self):
        for mode in harness.amount(["locked"], ["locked", "negotiate"]):
            self.run_job(3, "joined_behind", extra=["--coordination", mode])
            self.stop_daemons()
            self.daemons.clear()

    def test_a_name_comes_again_when_a_stream_has_its_result(self):
        self.run_job(2, "again")

    def test_a_stream_that_a_graph_is_captured_from_is_refused(self):
        self.run_job(2, "captured")

    def test_a_stream_that_waits_between_two_tensors_does_not_hold_up_the_worker(self):
        self.run_job(2, "crossed")

    def test_a_locked_schedule_that_is_left_while_only_streams_wait(self):
        self.run_job(2, "skipped")

    def test_memory_that_comes_again_at_an_address(self):
        self.run_job(2, "recycle")

    def test_an_allocator_that_announces_what_it_frees(self):
        self.run_job(2, "announced")

    def test_forgetting_memory_right_behind_a_submission_does_not_overtake_it(self):
        self.run_job(2, "forgotten", "two_streams")

    def test_tensors_across_several_allocations(self):
        for ranks in harness.amount([3], [2, 3]):
            daemon, _ = self.run_job(ranks, "across", "across_known", "across_again", "across_streams")
            self.assertTrue(wait_until(lambda d=daemon: d.metric("rueda_gpu_workers") == 0, 10))
            self.assertEqual(daemon.metric("rueda_gpu_memories"), 0)
            self.assertEqual(daemon.metric("rueda_gpu_worker_losses_total"), 0)
            self.stop_daemons()
            self.daemons.clear()

    def test_tensors_across_several_allocations_between_nodes(self):
        self.run_between_nodes([2, 1], "across", "across_known", "across_again", "across_streams")

    def test_more_runs_of_allocations_than_are_joined_at_a_time(self):
        self.run_job(2, "across_many")

    def test_a_thread_without_a_context(self):
        self.run_job(2, "without_context")

    def test_a_tensor_that_goes_on_where_nothing_is_mapped_is_refused(self):
        _, job = self.run_job(2, "beyond")
        for number in range(2):
            error = job.wait_for(number, "^error (.*)$").group(1)
            self.assertRegex(error, r'^-1 .*tensor "beyond": \d+ bytes of device memory reach beyond their allocation.*'
                                    r"behind \d+ of them: no memory is mapped at this address; hand over memory")
            self.assertRegex(job.wait_for(number, "^nowhere (.*)$").group(1), "^-1 .*no memory is mapped")

    def test_device_and_host_memory_do_not_go_together(self):
        _, job = self.run_job(2, "mismatch")
        for number in range(2):
            error = job.wait_for(number, "^error (.*)$").group(1)
            self.assertRegex(error, 'tensor "t".* memory is (host|device) memory on rank [01] and (host|device) memory '
                                    "on rank [01]")

    def test_between_nodes_results_are_those_of_host_memory(self):
        self.run_between_nodes([1, 1], "same", "broadcast", "group")

    def test_several_ranks_of_several_nodes(self):
        self.run_between_nodes([2, 1], "alike", "broadcast", "group")

    def test_streams_wait_for_other_nodes(self):
        self.run_between_nodes([2, 2], "streams", "ahead", "crossed", "skipped")

    def test_memory_that_comes_again_on_several_nodes(self):
        self.run_between_nodes([1, 1], "recycle", "mismatch")

    def test_what_goes_between_nodes_may_be_large(self):
        self.run_between_nodes([1, 1], "large")

    def test_a_large_batch_goes_in_rounds(self):
        self.run_between_nodes([2, 1], "rounds")
        # The last of the results may come while earlier ones are on the network.
        self.stop_daemons()
        self.daemons.clear()
        self.run_between_nodes([1, 1, 1], "rounds", extra=["--coordination", "negotiate"])

    def test_halving_and_doubling(self):
        self.run_between_nodes([2, 1], "alike", "rounds", extra=["--algorithm", "halving-doubling"])
        self.stop_daemons()
        self.daemons.clear()
        self.run_between_nodes([1, 1, 1], "rounds", "group", extra=["--algorithm", "halving-doubling"])

    def test_a_declared_step_of_device_memory_is_locked_at_once(self):
        self.run_between_nodes([1, 1], "declared")
        for daemon in self.daemons:
            self.assertRegex(daemon.output(), "locked as declared from operation .*: 5 tensors a step")
            self.assertEqual(daemon.metric("rueda_plans_abandoned_total"), 0)

    def test_host_memory_behind_device_memory_that_is_late(self):
        for mode in harness.amount(["locked"], ["locked", "negotiate"]):
            self.run_between_nodes([2, 1], "mixed", extra=["--coordination", mode])
            self.stop_daemons()
            self.daemons.clear()

    def test_a_result_does_not_wait_for_what_is_to_go_out_later(self):
        self.run_job(2, "late")
        self.stop_daemons()
        self.daemons.clear()
        self.run_between_nodes([2, 1], "late")

    def test_what_is_too_large_for_the_daemon_is_an_error_that_names_the_flag(self):
        arguments = ["--gpu-plugin", self.plugin, "--gpu-staging-bytes", "1M"]
        daemons = harness.IntegrationTest.start_daemons(self, "alpha", "beta", arguments=arguments)
        job = self.start_job(daemons, [1, 1], device_rank("too_large"))
        for number in range(2):
            self.assertRegex(job.wait_for(number, "^error (.*)$").group(1), "4194304 bytes.*raise --gpu-staging-bytes")
        job.exit_codes()

    def test_kill_of_anything_on_one_node_releases_the_streams_of_the_other(self):
        for victim, scenario in (("worker", "loop"), ("rank", "loop"), ("daemon", "loop"),
                                 ("worker", "loop_in_rounds"), ("rank", "loop_in_rounds")):
            with self.subTest(victim=victim, scenario=scenario):
                said = {"worker": "the GPU worker of job .* on node alpha.* was killed by signal 9",
                        "rank": r"^-5 .*\brank 0\b", "daemon": "alpha"}[victim]
                self.kill_on_one_of_two_nodes(victim, scenario, said, WORKER_LOST_S)
                self.stop_daemons()
                self.daemons.clear()

    @needs_fake
    def test_a_sticky_error_in_any_phase_ends_the_job_and_releases_all_streams(self):
        # The numbers reach every kind of call of a batch in rounds, of the first batch and of later ones: waits, reductions,
        # copies out, copies in, scattering, counters.
        for after in (0, 1, 2, 3, 5, 8, 13, 40):
            with self.subTest(after=after):
                self.env["RUEDA_FAKE_GPU_LOSE_AFTER"] = str(after)
                alpha, = self.start_daemons("alpha")
                del self.env["RUEDA_FAKE_GPU_LOSE_AFTER"]
                beta, = self.start_daemons("beta")
                began_s = time.monotonic()
                job = self.start_job([alpha, beta], [1, 1], device_rank("loop_in_rounds"))
                for number in range(2):
                    self.assert_error(job, number, "the GPU worker of job .* on node alpha.*the device has fallen off",
                                      began_s, PATIENCE_S / 2)
                job.exit_codes()
                self.assertEqual(alpha.metric("rueda_gpu_worker_losses_total"), 1)
                self.assertTrue(wait_until(lambda d=beta: d.metric("rueda_gpu_workers") == 0, 10))
                self.stop_daemons()
                self.daemons.clear()

    def test_without_a_plugin_host_memory_goes_on(self):
        daemon, = self.start_daemons("alpha", plugin=os.path.join(self.folder, "none.so"))
        job = self.start_job([daemon], [2], device_rank("refused"))
        self.assertEqual(job.exit_codes(), [0], job.output())
        for number in range(2):
            for attempt in range(2):
                self.assertRegex(job.wait_for(number, f"^error {attempt} (.*)$").group(1),
                                 "there is no GPU plugin.*hand over host memory")
        self.assertEqual(len(re.findall("there is no GPU plugin", daemon.output())), 1, daemon.output())

    def test_with_cudas_plugin_and_no_driver_host_memory_goes_on(self):
        plugin = os.path.join(harness.BUILD, "lib", "librueda_cuda.so")
        if IS_REAL or not os.path.exists(plugin) or os.path.exists("/proc/driver/nvidia/version"):
            self.skipTest("CUDA's plugin was not built, or there is a driver")
        daemon, = self.start_daemons("alpha", plugin=plugin)
        job = self.start_job([daemon], [2], device_rank("refused"))
        self.assertEqual(job.exit_codes(), [0], job.output())
        for number in range(2):
            self.assertRegex(job.wait_for(number, "^error 0 (.*)$").group(1), "there is no GPU to be used.*host memory")
        self.assertEqual(len(re.findall("there is no GPU to be used", daemon.output())), 1, daemon.output())

    @needs_fake
    def test_an_exclusive_gpu_is_refused_with_the_remedy_unless_mps_runs(self):
        self.env["RUEDA_FAKE_GPU_MODE"] = "exclusive"
        daemon, = self.start_daemons("alpha")
        job = self.start_job([daemon], [1], device_rank("refused"))
        self.assertEqual(job.exit_codes(), [0], job.output())
        self.assertRegex(job.wait_for(0, "^error 0 (.*)$").group(1), "exclusive-process mode.*run MPS.*hand over host")
        self.stop_daemons()
        self.daemons.clear()
        self.env["RUEDA_FAKE_GPU_MODE"] = "exclusive,mps"
        daemon, _ = self.run_job(1, "broadcast")
        self.assertIn("is ready on a GPU that is none, through MPS", daemon.output())

    @needs_fake
    def test_that_kernels_take_turns_is_said_and_counted(self):
        daemon, = self.start_daemons("alpha")
        job = self.start_job([daemon], [1], device_rank("loop"))
        job.wait_for(0, "^looping")
        self.assertIn("nvidia-cuda-mps-control -d lets them run side by side", daemon.output())
        self.assertEqual(daemon.metric("rueda_gpu_workers_without_mps"), 1)
        doctor = self.start([harness.program("ruedactl"), "--socket", daemon.socket, "doctor"])
        self.assertEqual(doctor.exit_code(), 1)
        self.assertRegex(doctor.output(), "1 GPU worker runs without MPS.*\n  start MPS before the jobs")
        os.kill(job.pid_of(0), signal.SIGKILL)
        job.exit_codes()
        self.assertTrue(wait_until(lambda: daemon.metric("rueda_gpu_workers_without_mps") == 0, 10))

    def test_kill_of_the_worker_ends_the_job_and_the_next_has_another(self):
        daemon, = self.start_daemons("alpha")
        job = self.start_job([daemon], [2], device_rank("loop"))
        for number in range(2):
            job.wait_for(number, "^looping")
        worker = self.worker_of(daemon)
        killed_s = time.monotonic()
        os.kill(worker, signal.SIGKILL)
        for number in range(2):
            self.assert_error(job, number, "the GPU worker of job .* was killed by signal 9.*start the job again",
                              killed_s, WORKER_LOST_S)
        job.exit_codes()
        self.assertEqual(daemon.metric("rueda_gpu_worker_losses_total"), 1)
        again = self.start_job([daemon], [2], device_rank("group"))
        self.assertEqual(again.exit_codes(), [0], again.output())
        self.assertNotEqual(self.worker_of(daemon), worker)

    def test_kill_of_a_rank_releases_the_streams_of_the_others(self):
        daemon, = self.start_daemons("alpha")
        for scenario in ("loop", "stuck"):
            job = self.start_job([daemon], [2], device_rank(scenario))
            job.wait_for(0, "^looping" if scenario == "loop" else "^stuck")
            job.wait_for(1, "^looping" if scenario == "loop" else "^sleeping")
            worker = self.worker_of(daemon)
            killed_s = time.monotonic()
            os.kill(job.pid_of(1), signal.SIGKILL)
            self.assert_error(job, 0, r"^-5 .*\brank 1\b", killed_s, RANK_LOST_S)
            self.assertFalse(os.path.exists(f"/proc/{worker}"), "the worker has memory of a rank that was told")
            job.exit_codes()
            self.assertTrue(wait_until(lambda: daemon.metric("rueda_gpu_workers") == 0, 10))
            self.assertEqual(daemon.metric("rueda_gpu_memories"), 0)
        self.assertEqual(daemon.metric("rueda_gpu_worker_losses_total"), 0)

    def test_memory_of_who_is_killed_while_a_kernel_has_it_returns_to_the_gpu(self):
        count = (64 if IS_REAL else 1) << 20
        self.env["RUEDA_TEST_COUNT"] = str(count)
        daemon, = self.start_daemons("alpha")
        before = self.free_bytes()
        for victim, said in (("rank", r"^-5 .*\brank 0\b"), ("worker", "the GPU worker of job .* was killed by signal 9")):
            job = self.start_job([daemon], [2], device_rank("loop_large"))
            for number in range(2):
                job.wait_for(number, "^looping")
            self.assertLessEqual(self.free_bytes(), before - 2 * 3 * 4 * count, "what the ranks have")
            killed_s = self.kill(victim, daemon, job)
            self.assert_error(job, 1, said, killed_s, RANK_LOST_S if victim == "rank" else WORKER_LOST_S)
            job.exit_codes()
            self.assertTrue(wait_until(lambda: daemon.metric("rueda_gpu_workers") == 0, 10))
            self.assertGreaterEqual(self.free_bytes(), before - MEMORY_NOISE, victim)

    def test_a_rank_that_leaves_with_device_memory_under_way_is_an_error_that_names_it(self):
        for nodes in (["alpha"], ["alpha", "beta"]):
            daemons = self.start_daemons(*nodes)
            job = self.start_job(daemons, [2] if len(nodes) == 1 else [1, 1], device_rank("leaver"))
            job.wait_for(0, "^left")
            self.assertRegex(job.wait_for(1, "^error (.*)$", 10 * SLOWNESS).group(1),
                             '^-5 rank 0 said goodbye while tensor "left" in its device memory was under way')
            job.exit_codes()
            self.stop_daemons()
            self.daemons.clear()

    def test_kill_of_the_daemon_releases_the_streams(self):
        daemon, = self.start_daemons("alpha")
        job = self.start_job([daemon], [2], device_rank("loop"))
        for number in range(2):
            job.wait_for(number, "^looping")
        killed_s = time.monotonic()
        daemon.send(signal.SIGKILL)
        for number in range(2):
            self.assert_error(job, number, "^-7 ", killed_s, RANK_LOST_S)
        job.exit_codes()


if __name__ == "__main__":
    harness.main()
