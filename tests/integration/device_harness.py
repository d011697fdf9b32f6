"""Daemons with a GPU, whose memory their GPU workers and ranks share as processes: a fake one, or with RUEDA_TEST_GPU=cuda
the machine's (tests/gpu/run.sh). RUEDA_TEST_PYTHON is the ranks' Python, instead of Debian's."""

import os
import tempfile
import unittest

import harness
from harness import BUILD, IntegrationTest

IS_REAL = os.environ.get("RUEDA_TEST_GPU") == "cuda"
PYTHON = os.environ.get("RUEDA_TEST_PYTHON", harness.PYTHON)

needs_fake = unittest.skipIf(IS_REAL, "only a fake GPU can be made to be so")


class DeviceIntegrationTest(IntegrationTest):

    def setUp(self):
        super().setUp()
        if IS_REAL:
            self.plugin = os.path.join(BUILD, "lib", "librueda_cuda.so")
            return
        self.memory = tempfile.TemporaryDirectory(prefix="rueda-gpu-")
        self.addCleanup(self.memory.cleanup)
        library_path = os.path.join(BUILD, "lib")
        self.plugin = os.path.join(library_path, "librueda_gpu_test_fake.so")
        self.env["RUEDA_FAKE_GPU"] = self.memory.name
        self.env["RUEDA_CUDA_LIBRARY"] = os.path.join(library_path, "librueda_fake_cuda.so")

    def start_daemons(self, *node_ids, plugin=None):
        return super().start_daemons(*node_ids, arguments=["--gpu-plugin", plugin or self.plugin])
