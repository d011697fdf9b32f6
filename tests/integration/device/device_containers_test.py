#!/usr/bin/python3
"""Tests device memory of ranks with PID and IPC namespaces of their own, as in a container. The driver decides whether the GPU
worker opens it or it goes through host memory; results, streams and deaths are as ever."""

import signal
import subprocess
import sys
import unittest

import harness
from device_harness import IS_REAL, DeviceIntegrationTest, device_rank
from harness import SLOWNESS, wait_until

LOST_S = 4.0 * SLOWNESS
INSIDE = ["unshare", "--pid", "--ipc", "--fork", "--kill-child"]
MAY_UNSHARE = subprocess.run([*INSIDE, "true"], capture_output=True, check=False).returncode == 0


@unittest.skipUnless(MAY_UNSHARE, "this user or system makes no namespaces")
class DeviceContainersTest(DeviceIntegrationTest):

    def say_how(self, daemon):
        submissions = daemon.metric("rueda_gpu_submissions_total")
        staged = daemon.metric("rueda_gpu_staged_submissions_total")
        self.assertGreater(submissions, 0)
        if not IS_REAL:
            self.assertEqual(staged, 0, "a fake GPU's memory is opened by a file's name")
        print(f"{staged:.0f} of {submissions:.0f} submissions went through host memory", file=sys.stderr)

    def test_one_node(self):
        daemon, = self.start_daemons("alpha")
        job = self.start_job([daemon], [2], [*INSIDE, *device_rank("alike", "broadcast", "group", "streams", "ahead")])
        self.assertEqual(job.exit_codes(), [0], job.output() + daemon.output())
        self.say_how(daemon)
        self.assertTrue(wait_until(lambda: daemon.metric("rueda_gpu_workers") == 0, 10))
        self.assertEqual(daemon.metric("rueda_gpu_memories"), 0)

    def test_two_nodes(self):
        daemons = self.start_daemons("alpha", "beta")
        job = self.start_job(daemons, [2, 1], [*INSIDE, *device_rank("alike", "rounds", "streams")])
        self.assertEqual(job.exit_codes(), [0, 0], job.output() + "".join(daemon.output() for daemon in daemons))
        for daemon in daemons:
            self.say_how(daemon)

    def test_the_daemons_death_releases_the_streams(self):
        daemon, = self.start_daemons("alpha")
        job = self.start_job([daemon], [2], [*INSIDE, *device_rank("loop")])
        for number in range(2):
            job.wait_for(number, "^looping")
        daemon.send(signal.SIGKILL)
        for number in range(2):
            self.assertRegex(job.wait_for(number, r"^error (-?\d+) at").group(1), "^-7", job.output())
            job.wait_for(number, "^released", LOST_S)
        job.exit_codes()


if __name__ == "__main__":
    harness.main()
