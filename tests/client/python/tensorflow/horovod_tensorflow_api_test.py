#!/usr/bin/python3
"""Tests that rueda.tensorflow and rueda.tensorflow.keras have the names of horovod.tensorflow 0.28.1, with their signatures.

horovod_tensorflow_signatures.json is made from that release's source by horovod_tensorflow_signatures.py. What is missing or differs is
listed here, and in docs/tensorflow.md. RUEDA_TEST_PYTHON names a Python that has TensorFlow; without one the test is skipped."""

import importlib.util
import inspect
import json
import os
import subprocess
import sys
import unittest

PYTHON = os.environ.get("RUEDA_TEST_PYTHON", sys.executable)
if os.path.realpath(sys.prefix) == os.path.realpath(sys.base_prefix) and PYTHON != sys.executable:
    sys.exit(subprocess.run([PYTHON, *sys.argv], check=False).returncode)

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
HAS_TENSORFLOW = importlib.util.find_spec("tensorflow") is not None
if HAS_TENSORFLOW:
    import rueda.tensorflow as hvd
    import rueda.tensorflow.keras as hvd_keras

MISSING = {
    "BroadcastGlobalVariablesHook": "TensorFlow has no estimators any more",
    "LocalGradientAggregationHelper": "a class that Horovod's optimizers use; backward_passes_per_step is there",
    "check_num_rank_power_of_2": "Adasum takes any number of ranks",
    "handle_average_backwards_compatibility": "a function that Horovod uses itself",
    "refs_to_vars": "a function that Horovod uses itself",
    "vars_to_refs": "a function that Horovod uses itself",
}
# The names with further parameters behind Horovod's, and which.
MORE = {"keras/callbacks.BestModelCheckpoint": ["filepath"]}


@unittest.skipUnless(HAS_TENSORFLOW, "TensorFlow is not installed (tests/run.sh --tensorflow installs it)")
class HorovodTensorFlowApiTest(unittest.TestCase):

    def check(self, name, function, wanted):
        found = [(one.name, one.default) for one in inspect.signature(function).parameters.values() if one.name != "self"]
        self.assertEqual([one[0] for one in found], [*(one[0] for one in wanted), *MORE.get(name, [])], name)
        for (parameter, default), (_, text) in zip(found, wanted):
            if text is None:
                self.assertIs(default, inspect.Parameter.empty, f"{name}({parameter})")
            else:
                self.assertEqual(default, eval(text, dict(vars(hvd))), f"{name}({parameter})")

    def test_every_name_is_there_with_its_signature(self):
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "horovod_tensorflow_signatures.json")
        with open(path, encoding="utf-8") as file:
            table = json.load(file)
        self.assertGreater(len(table), 80)
        for name, wanted in table.items():
            module, _, path = name.rpartition("/")
            if name in MISSING:
                self.assertFalse(hasattr(hvd, name), f"{name} is there: take it from MISSING")
                continue
            with self.subTest(name=name):
                value = hvd_keras if module else hvd
                for part in path.split("."):
                    value = getattr(value, part)
                if "." not in path:
                    self.assertIn(path, (hvd_keras if module else hvd).__all__)
                if "function" in wanted:
                    self.check(name, value, wanted["function"])

    def test_every_name_has_a_docstring(self):
        for module in (hvd, hvd_keras, hvd_keras.callbacks):
            for name in module.__all__:
                value = getattr(module, name)
                if inspect.isfunction(value) or inspect.isclass(value):
                    self.assertTrue(value.__doc__, name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
