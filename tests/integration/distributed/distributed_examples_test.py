#!/usr/bin/python3
"""Tests the examples of torch.distributed that people copy.

RUEDA_TEST_PYTHON is the Python that has the PyTorch to be tested, instead of Debian's."""

import os
import re
import subprocess
import unittest

import harness
from harness import SOURCE, IntegrationTest

FOLDER = os.path.join(SOURCE, "client", "python", "examples")
PYTHON = os.environ.get("RUEDA_TEST_PYTHON", harness.PYTHON)


def has(module, attribute=""):
    program = f"import {module}\n{module}{attribute}"
    return subprocess.run([PYTHON, "-c", program], capture_output=True, check=False).returncode == 0


@unittest.skipUnless(has("torch") and has("sklearn"), "PyTorch is not installed (deploy/packages.sh test installs it)")
class DistributedExamplesTest(IntegrationTest):

    def run_example(self, name, ranks=2, nodes=2):
        run = self.ruedarun("-np", str(ranks), "--virtual-nodes", str(nodes), PYTHON, os.path.join(FOLDER, name))
        self.assertEqual(run.exit_code(200), 0, run.output())
        self.assertGreater(float(re.findall(r"accuracy (\d\.\d+)", run.output())[-1]), 0.9)
        return run.output()

    def test_digits(self):
        self.run_example("distributed_digits.py")

    def test_mixed_precision(self):
        self.run_example("distributed_mixed_precision.py")

    def test_a_death_costs_the_steps_since_the_snapshot(self):
        daemon = self.start_daemon("node")
        snapshot, died = (os.path.join(self.folder, name) for name in ("snapshot.pt", "died"))
        # Debian's torchrun fails under Python 3.11 unless its output goes into files.
        log = ["--log_dir", os.path.join(self.folder, "log"), "--redirects", "1", "--tee", "1"]
        run = self.start([PYTHON, "-m", "torch.distributed.run", *log, "--nproc_per_node", "2", "--max_restarts", "2",
                          "--master_port", str(harness.free_port()), os.path.join(FOLDER, "distributed_elastic.py"),
                          snapshot, "--die-once", died], extra_env={"RUEDA_SOCKET": daemon.socket})
        self.assertEqual(run.exit_code(200), 0, run.output())
        self.assertEqual(re.findall(r"begins with step (\d+)", run.output()), ["0", "30"], run.output())
        self.assertRegex(run.output(), r"loss 0\.00\d+ after 100 steps")

    def test_ddp_goes_on_in_the_same_processes_when_one_dies(self):
        run = self.ruedarun("-np", "3", "--virtual-nodes", "2", "--min-np", "2", "env", "-C", self.folder, PYTHON,
                            os.path.join(FOLDER, "distributed_elastic_ddp.py"), "--steps", "300", "--die-at", "35")
        self.assertEqual(run.exit_code(200), 0, run.output())
        self.assertIn("[0] goes back to the last commit: ", run.output())
        self.assertIn("[0] rank 0 of 2", run.output())
        self.assertIn("[2] rank 1 of 2", run.output())
        self.assertRegex(run.output(), r"\[2\] loss 0\.00\d+ after 300 steps")

    def test_what_is_no_elastic_job_says_so(self):
        run = self.ruedarun("-np", "1", PYTHON, os.path.join(FOLDER, "distributed_elastic_ddp.py"))
        self.assertNotEqual(run.exit_code(200), 0)
        self.assertIn("this is no elastic job: start it with ruedarun --min-np", run.output())

    @unittest.skipUnless(has("torch.distributed.fsdp", ".fully_shard"), "this PyTorch has no FSDP on the CPU")
    def test_fsdp(self):
        output = self.run_example("distributed_fsdp.py")
        held, whole = map(int, re.search(r"(\d+) of (\d+) weights", output).groups())
        self.assertLess(held, 0.6 * whole)

    @unittest.skipUnless(has("accelerate"), "accelerate is not installed")
    def test_accelerate(self):
        self.assertIn("rueda: accuracy", self.run_example("distributed_accelerate.py"))

    @unittest.skipUnless(has("lightning"), "Lightning is not installed")
    def test_lightning(self):
        self.assertIn("rueda: accuracy", self.run_example("distributed_lightning.py"))


if __name__ == "__main__":
    harness.main()
