#!/usr/bin/python3
"""Tests rueda.tensorflow.elastic: a rank is killed, the others go on as the same processes, and who is started again takes part.
Without TensorFlow it is skipped: tests/run.sh --tensorflow has it."""

import os
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

    def go_on_from_the_last_commit(self, how):
        steps = self.train_over_a_death(how)
        self.assertTrue(all(0 <= before - after + 1 <= 2 for before, after in zip(steps, steps[1:])), steps)

    def test_a_loop_goes_on_from_its_last_commit(self):
        self.go_on_from_the_last_commit("graph")

    def test_variables_go_back_to_their_last_commit(self):
        self.go_on_from_the_last_commit("variables")

    def test_a_fit_goes_on_in_the_epoch_where_it_was(self):
        self.program = os.path.join(FOLDER, "keras_elastic_rank.py")
        steps = self.train_over_a_death("tf.keras")
        self.assertEqual(steps, list(range(5, steps[-1] + 1, 5)))


if __name__ == "__main__":
    harness.main()
