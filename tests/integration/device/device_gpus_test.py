#!/usr/bin/python3
"""Tests ranks of a node that have a GPU each: their GPUs reduce peer to peer, a part each. With RUEDA_TEST_GPU=cuda these are the
machine's, of which there must be two at least."""

import ctypes
import os
import re
import signal
import time
import unittest

import harness
from device_harness import IS_REAL, PYTHON, DeviceIntegrationTest, needs_fake
from harness import SLOWNESS, SOURCE, wait_until

# The number of elements, of which each of four GPUs has a part, whatever the dtype.
COUNT = 1_050_001
LOST_S = 4.0 * SLOWNESS


def gpus_of_this_machine():
    count = ctypes.c_int()
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        driver.cuInit(0)
        driver.cuDeviceGetCount(ctypes.byref(count))
    except OSError:
        pass
    return count.value


GPUS = gpus_of_this_machine() if IS_REAL else 4


@unittest.skipIf(GPUS < 2, "there is one GPU")
class DeviceGpusTest(DeviceIntegrationTest):

    def setUp(self):
        super().setUp()
        self.env["RUEDA_TEST_OWN_GPU"] = "1"
        self.env["RUEDA_TEST_COUNT"] = str(COUNT)
        self.env["RUEDA_FAKE_GPU_COUNT"] = str(GPUS)

    def start_ranks(self, ranks, *scenarios, extra=()):
        daemons = self.start_daemons(*("alpha", "beta")[:len(ranks)])
        command = [PYTHON, os.path.join(SOURCE, "tests", "integration", "device", "device_rank.py"), *scenarios]
        return daemons, self.start_job(daemons, ranks, command, extra)

    def run_job(self, ranks, *scenarios, extra=()):
        daemons, job = self.start_ranks(ranks, *scenarios, extra=extra)
        codes = job.exit_codes()
        self.assertEqual(codes, [0] * len(ranks), job.output() + "".join(daemon.output() for daemon in daemons))
        for daemon, count in zip(daemons, ranks):
            self.assertTrue(wait_until(lambda d=daemon: d.metric("rueda_gpu_workers") == 0, 10))
            self.assertEqual(daemon.metric("rueda_gpu_memories"), 0)
            self.assertEqual(daemon.metric("rueda_gpu_worker_losses_total"), 0)
            numbers = {int(number) for number in re.findall(r"its GPU number (\d+)", daemon.output())}
            self.assertEqual(numbers, set(range(2, min(count, GPUS) + 1)), daemon.output())
        self.stop_daemons()
        self.daemons.clear()

    def test_results_are_those_of_host_memory(self):
        for ranks in harness.amount([4], [2, 4]):
            self.run_job([ranks], "same", "broadcast")

    def test_groups_out_of_place_and_in_it(self):
        for ranks in harness.amount([4], [2, 4]):
            self.run_job([ranks], "group", "rounds")

    def test_streams_wait_for_each_other_without_the_host(self):
        for mode in ("locked", "negotiate"):
            self.run_job([4], "streams", "crossed", "skipped", extra=["--coordination", mode])
        self.run_job([4], "late")

    def test_the_default_stream_is_that_of_the_tensors_gpu(self):
        self.run_job([2], "default_stream")

    def test_tensors_across_several_allocations(self):
        for ranks in harness.amount([4], [2, 4]):
            self.run_job([ranks], "across", "across_large", "across_known", "across_again", "across_streams")

    def test_memory_that_comes_again_at_an_address(self):
        self.run_job([2], "recycle")

    def test_several_nodes(self):
        self.env["RUEDA_TEST_COUNT"] = "1000"  # is little; the first GPU gathers, however much it is
        self.run_job([2, 1], "alike", "broadcast", "group", "rounds")
        self.run_job([2, 2], "across_large", "streams")
        for scenario in ("mixed", "late"):
            self.run_job([2, 2], scenario)

    @needs_fake
    def test_without_peer_access_what_cannot_be_reached_goes_through_host_memory(self):
        self.env["RUEDA_FAKE_GPU_PEERS"] = "none"
        self.env["RUEDA_TEST_COUNT"] = "1000"
        daemons, job = self.start_ranks([2], "same", "broadcast", "group", "streams")
        self.assertEqual(job.exit_codes(), [0], job.output() + daemons[0].output())
        said = ("fake GPU [01] and fake GPU [01] do not reach each other's memory: there is no peer access between "
                "them.*copied to pinned host memory")
        self.assertEqual(len(re.findall(said, job.output())), 1, job.output())
        staged, all_of_them = (daemons[0].metric(f"rueda_gpu_{name}submissions_total") for name in ("staged_", ""))
        self.assertGreater(staged, 0)
        self.assertLess(staged, all_of_them)

    def test_kill_of_a_rank_or_the_worker_releases_the_streams(self):
        for victim in ("rank", "worker"):
            with self.subTest(victim=victim):
                (daemon, ), job = self.start_ranks([3], "loop_in_rounds")
                for number in range(3):
                    job.wait_for(number, "^looping")
                worker = int(re.findall(r"on node alpha starts \(pid (\d+)\)", daemon.output())[-1])
                killed_s = time.monotonic()
                os.kill(job.pid_of(1) if victim == "rank" else worker, signal.SIGKILL)
                said = r"^-5 .*\brank 1\b" if victim == "rank" else "the GPU worker of job .* was killed by signal 9"
                for number in (0, 2) if victim == "rank" else range(3):
                    error = job.wait_for(number, r"^error (-?\d+) at (\S+) (.*)$")
                    self.assertRegex(f"{error.group(1)} {error.group(3)}", said)
                    self.assertLess(float(error.group(2)) - killed_s, LOST_S)
                    job.wait_for(number, "^released")
                self.assertTrue(wait_until(lambda pid=worker: not os.path.exists(f"/proc/{pid}"), 10))
                job.exit_codes()
                self.stop_daemons()
                self.daemons.clear()


if __name__ == "__main__":
    harness.main()
