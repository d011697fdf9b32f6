"""Runs daemons with a GPU, whose memory their GPU workers and ranks share as processes: a fake one, or with RUEDA_TEST_GPU=cuda
the machine's (tests/gpu/run.sh). RUEDA_TEST_PYTHON is the ranks' Python, instead of Debian's."""

import os
import re
import signal
import tempfile
import time
import unittest

import harness
from harness import BUILD, SOURCE, IntegrationTest, wait_until

IS_REAL = os.environ.get("RUEDA_TEST_GPU") == "cuda"
PYTHON = os.environ.get("RUEDA_TEST_PYTHON", harness.PYTHON)

needs_fake = unittest.skipIf(IS_REAL, "only a fake GPU can be made to be so")


def device_rank(*scenarios):
    return [PYTHON, os.path.join(SOURCE, "tests", "integration", "device", "device_rank.py"), *scenarios]


class DeviceIntegrationTest(IntegrationTest):

    def setUp(self):
        super().setUp()
        if IS_REAL:
            self.plugin = os.path.join(BUILD, "lib", "librueda_cuda.so")
            for name in ("RUEDA_TEST_GPU", "RUEDA_NCCL_LIBRARY"):
                if name in os.environ:
                    self.env[name] = os.environ[name]
            return
        self.memory = tempfile.TemporaryDirectory(prefix="rueda-test-gpu-")
        self.addCleanup(self.memory.cleanup)
        library_path = os.path.join(BUILD, "lib")
        self.plugin = os.path.join(library_path, "librueda_gpu_test_fake.so")
        self.env["RUEDA_FAKE_GPU"] = self.memory.name
        self.env["RUEDA_CUDA_LIBRARY"] = os.path.join(library_path, "librueda_fake_cuda.so")

    def start_daemons(self, *node_ids, plugin=None):
        return super().start_daemons(*node_ids, arguments=["--gpu-plugin", plugin or self.plugin])

    def run_job(self, ranks, *scenarios, extra=()):
        daemon, = self.start_daemons("alpha")
        job = self.start_job([daemon], [ranks], device_rank(*scenarios), extra)
        self.assertEqual(job.exit_codes(), [0], job.output() + daemon.output())
        return daemon, job

    def worker_of(self, daemon):
        found = wait_until(lambda: re.findall(r"the GPU worker of job \S+ on node alpha starts \(pid (\d+)\)",
                                              daemon.output()))
        return int(found[-1])

    def free_bytes(self):
        """Returns how many bytes of the GPU are free."""
        reader = self.start([PYTHON, os.path.join(SOURCE, "tests", "integration", "device", "device_free.py")])
        self.assertEqual(reader.exit_code(), 0, reader.output())
        return int(reader.output().split()[-1])

    def kill(self, victim, daemon, job):
        """Kills the "daemon", its "worker", or rank 0, and returns when."""
        killed_s = time.monotonic()
        if victim == "daemon":
            daemon.send(signal.SIGKILL)
        else:
            os.kill(self.worker_of(daemon) if victim == "worker" else job.pid_of(0), signal.SIGKILL)
        return killed_s

    def kill_on_one_of_two_nodes(self, victim, scenario, said, within_s, extra=()):
        """Runs a job that loops on alpha and beta, a rank each, of which alpha loses the victim. Checks what the ranks that are
        left are told, that their streams are released, and that beta's worker ends. Returns both daemons."""
        alpha, beta = self.start_daemons("alpha", "beta")
        job = self.start_job([alpha, beta], [1, 1], device_rank(scenario), extra)
        for number in range(2):
            job.wait_for(number, "^looping")
        killed_s = self.kill(victim, alpha, job)
        self.assert_error(job, 1, said, killed_s, within_s)
        if victim == "worker":
            self.assert_error(job, 0, said, killed_s, within_s)
        job.exit_codes()
        self.assertTrue(wait_until(lambda: beta.metric("rueda_gpu_workers") == 0, 10))
        return alpha, beta

    def run_between_nodes(self, ranks, *scenarios, extra=()):
        daemons = self.start_daemons(*("alpha", "beta", "gamma")[:len(ranks)])
        job = self.start_job(daemons, ranks, device_rank(*scenarios), extra)
        codes = job.exit_codes()
        self.assertEqual(codes, [0] * len(ranks), job.output() + "".join(daemon.output() for daemon in daemons))
        for daemon in daemons:
            self.assertGreater(daemon.metric("rueda_gpu_staged_bytes_total"), 0)
            self.assertTrue(wait_until(lambda d=daemon: d.metric("rueda_gpu_workers") == 0, 10))
            self.assertEqual(daemon.metric("rueda_gpu_memories"), 0)
            self.assertEqual(daemon.metric("rueda_gpu_worker_losses_total"), 0)

    def assert_error(self, job, number, pattern, since_s, within_s):
        error = job.wait_for(number, r"^error (-?\d+) at (\S+) (.*)$")
        self.assertRegex(f"{error.group(1)} {error.group(3)}", pattern, f"rank {number}")
        self.assertLess(float(error.group(2)) - since_s, within_s, error.group(0))
        job.wait_for(number, "^released")
