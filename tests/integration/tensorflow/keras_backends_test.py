#!/usr/bin/python3
"""Tests rueda.keras on the backends of Keras 3 that the Python has: tests/run.sh --tensorflow has one with TensorFlow, and one with JAX
and PyTorch."""

import os
import shutil
import subprocess
import tempfile
import unittest

import harness
from elastic_support import ElasticCase
from harness import IntegrationTest

FOLDER = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.environ.get("RUEDA_TEST_PYTHON", harness.PYTHON)  # as in distributed_test.py


def has(*modules):
    code = f"import importlib.util as u, sys; sys.exit(any(u.find_spec(one) is None for one in {modules}))"
    return subprocess.run([PYTHON, "-c", code], capture_output=True, check=False).returncode == 0


def has_keras_3():
    code = "import importlib.metadata as m, sys; sys.exit(int(m.version('keras').split('.')[0]) < 3)"
    return has("keras") and subprocess.run([PYTHON, "-c", code], capture_output=True, check=False).returncode == 0


def choose_backend(test, backend):
    """Has the ranks of a test train on a backend, or skips the test where that is not installed."""
    if not has(backend):
        test.skipTest(f"{backend} is not installed")
    if backend == "jax" and not os.path.exists(os.path.join(harness.BUILD, "lib", "librueda_jax.so")):
        test.skipTest("librueda_jax.so has not been built (docs/jax.md)")
    test.env["KERAS_BACKEND"] = backend


@unittest.skipUnless(has_keras_3(), "Keras 3 is not installed (tests/run.sh --tensorflow installs it)")
class KerasBackendsTest(IntegrationTest):
    learned = {}

    def train(self, backend):
        choose_backend(self, backend)
        run = self.ruedarun("-np", "2", "--virtual-nodes", "2", PYTHON, os.path.join(FOLDER, "keras_backends_rank.py"))
        self.assertEqual(run.exit_code(200), 0, run.output())
        for rank in (0, 1):
            self.assertIn(f"[{rank}] ok", run.output().split("\n"))
        found, = run.wait_for(r"^\[0\] learned (.*)")
        self.learned[backend] = [float(one) for one in found.group(1).split()]
        for other, weights in self.learned.items():
            for mine, theirs in zip(self.learned[backend], weights):
                self.assertAlmostEqual(mine, theirs, delta=0.005, msg=f"{backend} and {other}")

    def test_tensorflow(self):
        self.train("tensorflow")

    def test_jax(self):
        self.train("jax")

    def test_torch(self):
        self.train("torch")

    def refuse(self, code):
        """Returns what Python says of a program, which fails."""
        run = subprocess.run([PYTHON, "-c", code], env={**self.env, "TF_CPP_MIN_LOG_LEVEL": "2"}, capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 1, run.stderr)
        return run.stderr

    def test_a_backend_that_is_not_served(self):
        if not has("jax"):  # Keras's backend of NumPy needs it
            self.skipTest("jax is not installed")
        self.env["KERAS_BACKEND"] = "numpy"
        self.assertIn("ImportError: rueda.keras serves the backends tensorflow, jax, torch, not numpy; set KERAS_BACKEND=",
                      self.refuse("import rueda.keras"))

    def test_a_backend_that_is_chosen_too_late(self):
        backend = next(one for one in ("tensorflow", "jax", "torch") if has(one))
        self.env["KERAS_BACKEND"] = backend
        other = "jax" if backend != "jax" else "torch"
        self.assertIn(f"RuntimeError: Keras's backend was {backend} when rueda.keras was imported, and {other} has been asked for since",
                      self.refuse(f"import keras, os; os.environ['KERAS_BACKEND'] = '{other}'; import rueda.keras"))


@unittest.skipUnless(has_keras_3(), "Keras 3 is not installed (tests/run.sh --tensorflow installs it)")
class KerasElasticTest(ElasticCase):
    """A rank is killed within fit(), the others go on as the same processes, and who is started again takes part."""

    program = os.path.join(FOLDER, "keras_elastic_rank.py")

    def go_on_over_a_death(self, backend):
        choose_backend(self, backend)
        folder = tempfile.mkdtemp()  # a process that is killed leaves its temporary files
        self.addCleanup(shutil.rmtree, folder)
        self.env["TMPDIR"] = folder
        steps = self.train_over_a_death("keras")
        self.assertEqual(steps, list(range(5, steps[-1] + 1, 5)))

    def test_tensorflow(self):
        self.go_on_over_a_death("tensorflow")

    def test_jax(self):
        self.go_on_over_a_death("jax")

    def test_torch(self):
        self.go_on_over_a_death("torch")


if __name__ == "__main__":
    harness.main()
