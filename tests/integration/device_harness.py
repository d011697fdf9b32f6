"""Daemons with a fake GPU, whose memory their GPU workers and ranks share as processes."""

import os
import tempfile

from harness import BUILD, IntegrationTest


class DeviceIntegrationTest(IntegrationTest):

    def setUp(self):
        super().setUp()
        self.memory = tempfile.TemporaryDirectory(prefix="rueda-gpu-")
        self.addCleanup(self.memory.cleanup)
        library_path = os.path.join(BUILD, "lib")
        self.plugin = os.path.join(library_path, "librueda_gpu_test_fake.so")
        self.env["RUEDA_FAKE_GPU"] = self.memory.name
        self.env["RUEDA_CUDA_LIBRARY"] = os.path.join(library_path, "librueda_fake_cuda.so")

    def start_daemons(self, *node_ids, plugin=None):
        return super().start_daemons(*node_ids, arguments=["--gpu-plugin", plugin or self.plugin])
