#!/usr/bin/python3
"""Tests frameworks above PyTorch, as they come from PyPI, on Rueda: what they learn in 30 steps, beside Gloo.

RUEDA_TEST_PYTHON is the Python that has them (tests/torch/frameworks.sh). The package is installed, so nothing imports it."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest

import harness
import installed
from harness import SOURCE, IntegrationTest

FOLDER = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.environ.get("RUEDA_TEST_PYTHON", harness.PYTHON)
STEPS = 30
MAY_DIFFER = 1e-4
TIMEOUT_S = 240


def has(*modules):
    program = "".join(f"import importlib.util as u; assert u.find_spec({module!r})\n" for module in modules)
    return subprocess.run([PYTHON, "-c", program], capture_output=True, check=False).returncode == 0


def told(output, what):
    """Returns what programs said by frameworks_tools.tell(), one value for each that said it."""
    return [json.loads(found) for found in re.findall(rf"(?m)^(?:\[\d+\] )?{what}: (.*)$", output)]


@unittest.skipUnless(has("transformers", "deepspeed", "ray", "lightning", "accelerate"),
                     "the frameworks are not there (tests/run.sh --frameworks installs them)")
class FrameworksTest(IntegrationTest):

    @classmethod
    def setUpClass(cls):
        cls.where = tempfile.mkdtemp(prefix="rueda-test-frameworks.")
        cls.addClassCleanup(shutil.rmtree, cls.where)
        cls.python = installed.make_environment(PYTHON, SOURCE, cls.where)

    def setUp(self):
        super().setUp()
        # Whatever they would load from elsewhere is an error, and what they keep goes with the test.
        self.env.update({"PYTHONPATH": FOLDER, "HF_HUB_OFFLINE": "1", "HF_HOME": os.path.join(self.folder, "hf"), "HOME": self.folder,
                         "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "RAY_USAGE_STATS_ENABLED": "0"})

    def run_ranks(self, program, *arguments, **variables):
        """Runs a program on two ranks of each of two nodes, and returns what it said."""
        run = self.ruedarun("-np", "4", "--virtual-nodes", "2", self.python, os.path.join(FOLDER, program), *arguments,
                            extra_env={"TMPDIR": self.folder, **variables})
        self.assertEqual(run.exit_code(TIMEOUT_S), 0, run.output())
        return run.output()

    def assert_ran_on(self, output, group, count=4):
        groups = [found[1] for found in told(output, "backend")]
        self.assertEqual(groups, [group] * count, output)

    def assert_learns_alike(self, ours, theirs, what="losses", more=1):
        [found], [expected] = told(ours, what), told(theirs, "losses")
        self.assertEqual(len(found), STEPS + more, found)
        self.assertEqual(len(expected), STEPS + more, expected)
        self.assertLess(max(abs(one - other) for one, other in zip(found, expected)), MAY_DIFFER, f"{found}\n{expected}")
        self.assertLess(expected[STEPS - 1], expected[0])
        return expected

    def folder_of(self, name):
        return os.path.join(self.folder, name)

    def test_trainer_of_transformers(self):
        theirs = self.run_ranks("frameworks_trainer.py", self.folder_of("gloo"), "named")
        self.assert_ran_on(theirs, "ProcessGroup")
        for way, variables in (("named", {"RUEDA_TORCH_REPLACES": "gloo"}), ("made", {})):
            with self.subTest(way=way):
                ours = self.run_ranks("frameworks_trainer.py", self.folder_of(way), way, **variables)
                self.assert_ran_on(ours, "ProcessGroupRueda")
                expected = self.assert_learns_alike(ours, theirs)
                [resumed] = told(ours, "resumed")
                self.assertEqual(len(resumed), STEPS // 2 + 1)
                for found, wanted in zip(resumed, expected[STEPS // 2:]):
                    self.assertAlmostEqual(found, wanted, delta=MAY_DIFFER)
                weights = told(ours, "weights")
                self.assertEqual(weights, [weights[0]] * 4)

    def test_accelerate(self):
        theirs = self.run_ranks("frameworks_accelerate.py")
        self.assert_ran_on(theirs, "ProcessGroup")
        ours = self.run_ranks("frameworks_accelerate.py", RUEDA_TORCH_REPLACES="gloo")
        self.assert_ran_on(ours, "ProcessGroupRueda")
        self.assertEqual(told(ours, "backend"), [["gloo", "ProcessGroupRueda", "gloo"]] * 4)
        self.assert_learns_alike(ours, theirs, more=0)

    def test_lightning_is_told_a_name_and_nothing_else(self):
        theirs = self.run_ranks("frameworks_lightning.py", "gloo")
        # Lightning must not take a rank's place from the allocation in which the job was started.
        ours = self.run_ranks("frameworks_lightning.py", "rueda", SLURM_NTASKS="4", SLURM_JOB_NAME="train", SLURM_PROCID="0", SLURM_LOCALID="0")
        self.assert_ran_on(ours, "ProcessGroupRueda")
        self.assertEqual([found[2] for found in told(ours, "backend")], ["TorchElasticEnvironment"] * 4)
        self.assert_learns_alike(ours, theirs)
        self.assertEqual(told(ours, "inference"), [1.0])  # with gloo it is no_grad()

    def test_deepspeed(self):
        for stage in ("1", "2", "3"):
            with self.subTest(stage=stage):
                theirs = self.run_ranks("frameworks_deepspeed.py", "gloo", stage, self.folder_of(f"gloo{stage}"))
                ours = self.run_ranks("frameworks_deepspeed.py", "rueda", stage, self.folder_of(f"rueda{stage}"))
                self.assert_ran_on(ours, "ProcessGroupRueda")
                self.assert_learns_alike(ours, theirs)

    def run_ray(self, daemon, backend, *arguments):
        where = tempfile.mkdtemp(prefix="r", dir="/tmp")  # Ray's sockets are in there, whose paths must be short
        self.addCleanup(shutil.rmtree, where, ignore_errors=True)
        run = self.start([self.python, os.path.join(FOLDER, "frameworks_ray.py"), backend, where, *arguments],
                         extra_env={"RUEDA_SOCKET": daemon.socket, "TMPDIR": where})
        self.assertEqual(run.exit_code(TIMEOUT_S), 0, run.output())
        return run.output()

    def test_ray_train(self):
        daemon = self.start_daemon("node")
        theirs = self.run_ray(daemon, "gloo")
        ours = self.run_ray(daemon, "rueda")
        self.assert_ran_on(ours, "ProcessGroupRueda", 1)
        self.assert_learns_alike(ours, theirs, more=0)

    def test_ray_starts_a_killed_worker_again(self):
        daemon = self.start_daemon("node")
        ours = self.run_ray(daemon, "rueda", "--kill")
        self.assert_ran_on(ours, "ProcessGroupRueda", 1)
        [first] = told(ours, "first")
        self.assertIn(first, (5, 10))  # Ray may not have registered the last checkpoint before the death
        self.assertRegex(ours, r"rank 1 \(pid \d+\) closed its connection without saying goodbye")
        [losses] = told(ours, "losses")
        self.assertEqual(len(losses), STEPS)
        self.assertLess(losses[-1], losses[0])


if __name__ == "__main__":
    harness.main()
