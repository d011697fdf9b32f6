#!/usr/bin/python3
"""Tests rueda.tensorflow.elastic: a rank is killed, the others go on as the same processes, and who is started again takes part.
Without TensorFlow it is skipped: tests/run.sh --tensorflow has it."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest

import harness
from elastic_support import PYTHON, ElasticCase

FOLDER = os.path.dirname(os.path.abspath(__file__))
HAS_TENSORFLOW = subprocess.run([PYTHON, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('tensorflow') is None)"],
                                capture_output=True, check=False).returncode == 0


@unittest.skipUnless(HAS_TENSORFLOW, "TensorFlow is not installed (tests/run.sh --tensorflow installs it)")
class TensorFlowElasticTest(ElasticCase):
    program = os.path.join(FOLDER, "tensorflow_elastic_rank.py")

    def setUp(self):
        super().setUp()
        folder = tempfile.mkdtemp()  # a process that is killed leaves what TensorFlow makes of functions
        self.addCleanup(shutil.rmtree, folder)
        self.env["TMPDIR"] = folder

    def train_over_a_death(self, how):
        run = self.train(["-np", "3", "--min-np", "2"], how, "1:11")
        self.end_when_whole_again(run)
        self.assert_trained(run, (0, 1, 2))
        self.assertEqual([len(self.pids_of(run, slot)) for slot in (0, 1, 2)], [1, 2, 1], run.output())
        for slot in (0, 2):
            self.assertIn("reset from 3 to 2", self.lines_of(run, slot))
            self.assertIn("reset from 2 to 3", self.lines_of(run, slot))
        return [int(step) for step in re.findall(r"^\[0\] step (\d+) ", run.output(), re.MULTILINE)]

    def test_a_loop_goes_on_from_its_last_commit(self):
        steps = self.train_over_a_death("graph")
        self.assertTrue(all(0 <= before - after + 1 <= 2 for before, after in zip(steps, steps[1:])), steps)

    def test_a_fit_goes_on_in_the_epoch_where_it_was(self):
        steps = self.train_over_a_death("fit")
        self.assertEqual(steps, list(range(5, steps[-1] + 1, 5)))


if __name__ == "__main__":
    harness.main()
