#!/usr/bin/python3
"""Tests tests/gpu/run.sh, with scripts that stand for the programs: on a machine with one GPU it goes through to its end, and
names there what has failed; and that the bundle has what it runs."""

import ast
import os
import re
import subprocess
import tempfile
import unittest

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "run.sh")
ALWAYS = """[==========] Running 3 tests from 2 test suites.
[       OK ] Rigs/GpuReduce.AnyBitsAsTheCpusKernels/cuda (12 ms)
"""
# The text has GoogleTest's form.
ONE_GPU = ALWAYS + """tests/gpu/peer_conformance_test.cc:60: Skipped
there is no second GPU
[  SKIPPED ] Rigs/GpuPeer.AJoinIsReachedAsAWhole/cuda (0 ms)
[  SKIPPED ] Rigs/GpuCommunicator.BroadcastsFromAnyMember/cuda (0 ms)
[  PASSED  ] 1 test.
[  SKIPPED ] 2 tests, listed below:
[  SKIPPED ] Rigs/GpuPeer.AJoinIsReachedAsAWhole/cuda
[  SKIPPED ] Rigs/GpuCommunicator.BroadcastsFromAnyMember/cuda
"""
# The text is as long as the suite's.
NO_GPU = ALWAYS + "[  SKIPPED ] Rigs/GpuReduce.WireTypesAsTheCpusKernels/cuda (0 ms)\n" * 200 + """tests/gpu/rig.cc:80: Skipped
there is no CUDA driver
[  SKIPPED ] Rigs/GpuMemory.TheLimitIsKept/cuda (0 ms)
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] Rigs/GpuMemory.TheLimitIsKept/cuda
"""
JOBS = ("jobs", "adds", "rings", "gpus", "containers", "torch", "torch-expandable", "training")


class RunTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="rueda-test-gpu-run.")
        self.addCleanup(folder.cleanup)
        self.bin = os.path.join(folder.name, "bin")
        self.out = os.path.join(folder.name, "out")
        os.mkdir(self.bin)
        for name in ("gpu_test", "rueda-gpu-bench", "nvidia-cuda-mps-control"):
            self.stand_in(name, 'echo "$(basename "$0") $*"')
        self.stand_in("ruedarun", 'echo "job of ${RUEDA_INTER_NODE:-rueda}${CUDA_MPS_PIPE_DIRECTORY:+, by MPS}: $*"')
        self.stand_in("ldconfig", "true")
        self.stand_in("nvidia-smi", "echo a GPU")
        self.stand_in("python", 'case "$*" in -c*) exit 0;; *) echo "$* ${PYTORCH_CUDA_ALLOC_CONF:-} OK";; esac')
        self.stand_in("compute-sanitizer", 'echo "========= $* ERROR SUMMARY: 0 errors"')

    def stand_in(self, name, text):
        path = os.path.join(self.bin, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n{text}\n")
        os.chmod(path, 0o755)

    def run_script(self, suite=ONE_GPU):
        with open(os.path.join(self.bin, "suite.txt"), "w", encoding="utf-8") as file:
            file.write(suite)
        self.stand_in("gpu_conformance_test", f"cat {self.bin}/suite.txt")
        environment = {"PATH": f"{self.bin}:/usr/bin:/bin", "RUEDA_GPU_BIN": self.bin,
                       "RUEDA_TEST_PYTHON": os.path.join(self.bin, "python")}
        return subprocess.run([SCRIPT, self.out], env=environment, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False, timeout=60)

    def said(self, name):
        with open(os.path.join(self.out, name), encoding="utf-8") as file:
            return file.read()

    def test_one_gpu_without_nccl_is_enough(self):
        done = self.run_script()
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        for job in JOBS:
            self.assertIn("OK", self.said(f"{job}.txt"))
        self.assertIn("expandable_segments:True", self.said("torch-expandable.txt"))
        self.assertNotIn("expandable_segments", self.said("torch.txt"))
        self.assertIn("nccl: skipped: there is no libnccl.so.2", done.stdout)
        self.assertEqual([line.split()[2] for line in self.said("sanitizer.txt").splitlines() if "--tool" in line],
                         ["memcheck", "racecheck", "synccheck"])
        self.assertNotIn("by MPS", self.said("jobs.md"))
        for table in ("bench.md", "jobs.md"):
            self.assertIn("a GPU, without MPS, 20", self.said(table))
        self.assertRegex(self.said("jobs-mps.md"), "by MPS: .*latency --load")

    def test_without_a_gpu_it_says_so(self):
        if os.path.exists("/proc/driver/nvidia/version"):
            self.skipTest("there is a driver")
        done = self.run_script(NO_GPU)
        self.assertEqual(done.returncode, 77)
        self.assertIn("skipped: there is no GPU", done.stderr)
        self.assertIn("there is no CUDA driver", done.stdout)

    def test_a_test_of_cuda_that_fails_is_the_end(self):
        self.run_script()
        self.stand_in("gpu_conformance_test", f"cat {self.bin}/suite.txt; exit 1")
        environment = {"PATH": f"{self.bin}:/usr/bin:/bin", "RUEDA_GPU_BIN": self.bin}
        done = subprocess.run([SCRIPT, self.out], env=environment, capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("AnyBitsAsTheCpusKernels", done.stdout)

    def test_what_fails_is_named_when_all_has_run(self):
        self.stand_in("python", 'case "$*" in -c*) exit 0;; *adds*) echo "FAIL: adds"; exit 1;; *) echo OK;; esac')
        self.stand_in("compute-sanitizer", 'echo "========= Invalid read"; [ "$2" != memcheck ]')
        self.stand_in("ruedarun", 'case "$*" in *growth*) exit 1;; esac')
        done = self.run_script()
        self.assertEqual(done.returncode, 1)
        self.assertIn("failed: compute-sanitizer --tool memcheck adds bench/gpu/run.sh", done.stderr)
        self.assertIn("Invalid read", done.stdout)
        self.assertIn("OK", self.said("training.txt"))


class BundleTest(unittest.TestCase):

    def test_what_is_packed_imports_only_what_is_packed(self):
        """A module that was missing would be noticed on the machine with the GPU."""
        root = os.path.dirname(os.path.dirname(os.path.dirname(SCRIPT)))
        with open(os.path.join(root, "deploy", "bundle.sh"), encoding="utf-8") as script:
            names = re.search(r"^for name in (run support.*?); do$", script.read(), re.DOTALL | re.MULTILINE).group(1)
        packed = subprocess.run(["bash", "-c", f"printf '%s\\n' {names}"], capture_output=True, text=True, check=True).stdout.split()
        here = os.path.join(root, "tests", "integration")
        modules = {file[:-3] for _, _, files in os.walk(here) for file in files if file.endswith(".py")}
        there = {os.path.basename(name) for name in packed}
        self.assertGreater(len(there), 20)
        for name in packed:
            with open(os.path.join(here, f"{name}.py"), encoding="utf-8") as module:
                tree = ast.parse(module.read())
            imported = {item.name for node in ast.walk(tree) if isinstance(node, ast.Import) for item in node.names}
            imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
            self.assertEqual((imported & modules) - there, set(), name)


if __name__ == "__main__":
    unittest.main()
