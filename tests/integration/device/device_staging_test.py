#!/usr/bin/python3
"""Tests device memory that the GPU worker cannot open, as in another container: results, streams and bounds are as ever, and all
of it is logged and counted. It needs a fake GPU: a real worker on this machine opens everything."""

import os
import re
import signal
import unittest

import harness
from device_harness import IS_REAL, DeviceIntegrationTest, device_rank
from harness import SLOWNESS, wait_until

RELEASED_S = 4.0 * SLOWNESS


@unittest.skipIf(IS_REAL, "a real GPU opens what it is given here")
class DeviceStagingTest(DeviceIntegrationTest):

    def setUp(self):
        super().setUp()
        self.env["RUEDA_FAKE_GPU_REFUSES"] = "handles,descriptors"

    def test_results_are_those_of_host_memory_and_it_is_said_once(self):
        daemon, job = self.run_job(2, "same", "broadcast", "group", "across", "across_again")
        self.assertEqual(len(re.findall("rueda: rank [01]: the GPU worker cannot open this device memory.*hostPID",
                                        job.output())), 2, job.output())
        self.assertEqual(len(re.findall("device memory of local rank [01] goes through host memory.*cannot open",
                                        daemon.output())), 2, daemon.output())
        self.assertGreater(daemon.metric("rueda_gpu_staged_submissions_total"), 0)
        self.assertEqual(daemon.metric("rueda_gpu_staged_submissions_total"),
                         daemon.metric("rueda_gpu_submissions_total"))
        self.assertTrue(wait_until(lambda: daemon.metric("rueda_gpu_workers") == 0, 10))
        for gauge in ("rueda_gpu_memories", "rueda_gpu_staged_clients"):
            self.assertEqual(daemon.metric(gauge), 0, gauge)

    def test_streams(self):
        for mode in ("locked", "negotiate"):
            self.run_job(2, "streams", "ahead", "crossed", "skipped", "two_streams", "across_streams", "late",
                         extra=["--coordination", mode])
            self.stop_daemons()
            self.daemons.clear()

    def test_memory_that_comes_again_and_is_announced(self):
        self.run_job(2, "recycle", "forgotten", "unasked")
        self.stop_daemons()
        self.daemons.clear()
        self.run_job(2, "announced")

    def test_several_nodes(self):
        self.run_between_nodes([2, 1], "alike", "broadcast", "group", "mixed", "rounds", "two_streams")

    def test_what_is_in_flight_may_be_more_than_there_is_host_memory(self):
        self.env["RUEDA_DEVICE_STAGING_BYTES"] = str(3 << 20)
        for mode in ("locked", "negotiate"):
            self.run_job(2, "unwaited", "unwaited", "group", extra=["--coordination", mode])
            self.stop_daemons()
            self.daemons.clear()

    def test_two_threads_do_not_wait_for_each_others_host_memory(self):
        self.env["RUEDA_DEVICE_STAGING_BYTES"] = str(3 << 20)
        self.run_job(1, "two_groups")

    def test_too_little_host_memory_is_an_error_that_names_the_variable(self):
        self.env["RUEDA_DEVICE_STAGING_BYTES"] = str(1 << 20)
        _, job = self.run_job(2, "beyond_staging")
        for number in range(2):
            self.assertRegex(job.wait_for(number, "^error large (.*)$").group(1),
                             '^-12 tensor "large": 2097152 bytes.*raise RUEDA_DEVICE_STAGING_BYTES')
            self.assertRegex(job.wait_for(number, "^error group (.*)$").group(1),
                             '^-12 tensor "part.3": its group is larger.*raise RUEDA_DEVICE_STAGING_BYTES')

    def test_a_size_that_is_none_is_an_error_that_names_the_variable(self):
        self.env["RUEDA_DEVICE_STAGING_BYTES"] = "much"
        daemon, = self.start_daemons("alpha")
        job = self.start_job([daemon], [1], device_rank("same"))
        self.assertNotEqual(job.exit_codes(), [0])
        self.assertIn('RUEDA_DEVICE_STAGING_BYTES="much" is not a number', job.output())

    def test_only_what_cannot_be_opened_is_staged_and_the_doctor_says_so(self):
        for refused, staged in (("handles", 2), ("descriptors", 2), ("", 0)):
            self.env["RUEDA_FAKE_GPU_REFUSES"] = refused
            daemon, = self.start_daemons("alpha")
            job = self.start_job([daemon], [2], device_rank("counted"))
            for number in range(2):
                self.assertEqual(job.wait_for(number, r"^staged (\d+)$").group(1), str(staged), refused)
                job.wait_for(number, "^counted")
            self.assertEqual(daemon.metric("rueda_gpu_staged_clients"), 2 if staged else 0)
            doctor = self.start([harness.program("ruedactl"), "--socket", daemon.socket, "doctor"])
            doctor.exit_code()
            said = "2 processes have device memory that GPU workers cannot open"
            self.assertEqual(said in doctor.output(), staged > 0, doctor.output())
            for number in range(2):
                os.kill(job.pid_of(number), signal.SIGKILL)
            job.exit_codes()
            self.assertTrue(wait_until(lambda d=daemon: d.metric("rueda_gpu_staged_clients") == 0, 10))
            self.stop_daemons()
            self.daemons.clear()

    def test_kill_of_anything_releases_the_streams_of_the_others(self):
        for victim in ("worker", "rank", "daemon"):
            with self.subTest(victim=victim):
                daemon, = self.start_daemons("alpha")
                job = self.start_job([daemon], [2], device_rank("loop"))
                for number in range(2):
                    job.wait_for(number, "^looping")
                killed_s = self.kill(victim, daemon, job)
                said = {"worker": "the GPU worker of job .* was killed by signal 9", "rank": r"^-5 .*\brank 0\b",
                        "daemon": "^-7 "}[victim]
                self.assert_error(job, 1, said, killed_s, RELEASED_S)
                job.exit_codes()
                if victim != "daemon":
                    self.assertTrue(wait_until(lambda d=daemon: d.metric("rueda_gpu_staged_clients") == 0, 10))
                self.stop_daemons()
                self.daemons.clear()


if __name__ == "__main__":
    harness.main()
