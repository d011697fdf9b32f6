#!/usr/bin/python3
"""Tests rueda.tensorflow and its Keras front ends under ruedarun. Without TensorFlow they are skipped: tests/run.sh --tensorflow has
it."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest

import harness
from harness import SOURCE, IntegrationTest

FOLDER = os.path.dirname(os.path.abspath(__file__))
DIGITS = os.path.join(SOURCE, "client", "python", "examples", "tensorflow_digits.py")
PYTHON = os.environ.get("RUEDA_TEST_PYTHON", harness.PYTHON)  # as in distributed_test.py
HAS_TENSORFLOW = subprocess.run([PYTHON, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('tensorflow') is None)"],
                                capture_output=True, check=False).returncode == 0


def hidden_share(path):
    """Returns how much of the time of node 0's all-reduces, in a timeline, was between the first and the last gradient of a step. The
    first step, in which the graph is made, does not count. Tensors of one operation count once."""
    with open(path, encoding="utf-8") as file:
        events = [event for event in json.load(file)["traceEvents"] if event["ph"] == "X" and event["pid"] == 1]
    backwards = sorted((one["ts"], one["ts"] + one["dur"]) for one in events if one["name"] == "BACKWARD")[1:]
    reductions = {(one["args"]["operation"], one["ts"], one["ts"] + one["dur"]) for one in events
                  if one["name"] == "ALLREDUCE" and one["ts"] >= backwards[0][0]}
    hidden = sum(max(0, min(end, last) - max(begin, first)) for _, begin, end in reductions for first, last in backwards)
    return hidden / sum(end - begin for _, begin, end in reductions)


class WithoutTensorFlowTest(unittest.TestCase):

    def refuse(self, module, missing):
        """Returns what Python says of an import while another module cannot be imported."""
        code = f"import sys; sys.modules['{missing}'] = None; import {module}"  # None: the import fails
        run = subprocess.run([PYTHON, "-c", code], env={**os.environ, "PYTHONPATH": os.path.join(SOURCE, "client", "python")},
                             capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 1)
        return run.stderr.strip().split("\n")[-1]

    def test_what_is_missing_is_said_in_one_sentence(self):
        for module in ("rueda.tensorflow", "rueda.tensorflow.keras"):
            said = self.refuse(module, "tensorflow")
            self.assertRegex(said, r"^ImportError: rueda.tensorflow needs TensorFlow 2.15 or later.*pip install tensorflow-cpu\"$")
        self.assertRegex(self.refuse("rueda.keras", "keras"), r"^ImportError: rueda.keras needs Keras 3, .*pip install keras tensorflow-cpu\"$")


@unittest.skipUnless(HAS_TENSORFLOW, "TensorFlow is not installed (tests/run.sh --tensorflow installs it)")
class TensorFlowTest(IntegrationTest):

    def run_ranks(self, ranks, nodes, program, *arguments):
        run = self.ruedarun("-np", str(ranks), "--virtual-nodes", str(nodes), PYTHON, os.path.join(FOLDER, program), *arguments)
        self.assertEqual(run.exit_code(300), 0, run.output())
        for rank in range(ranks):
            self.assertIn(f"[{rank}] ok", run.output().split("\n"))
        return run

    def test_collectives_and_gradients(self):
        for ranks, nodes in harness.amount([(3, 2)], [(1, 1), (2, 1), (4, 2)]):
            with self.subTest(ranks=ranks, nodes=nodes):
                self.run_ranks(ranks, nodes, "tensorflow_rank.py", "collectives,gradients")

    def test_a_library_of_ops_that_is_not_there(self):
        environment = {**self.env, "RUEDA_TENSORFLOW_LIBRARY": "/nowhere/librueda_tensorflow.so", "TF_CPP_MIN_LOG_LEVEL": "2"}
        run = subprocess.run([PYTHON, "-c", "import rueda.tensorflow as hvd; hvd.init()"], env=environment, capture_output=True, text=True,
                             check=False)
        self.assertIn("ImportError: librueda_tensorflow.so was not found", run.stderr)
        self.assertIn("/nowhere/librueda_tensorflow.so (no such file)", run.stderr)

    def test_keras(self):
        self.run_ranks(2, 2, "tensorflow_rank.py", "keras")

    def test_a_fit_of_keras(self):
        self.run_ranks(2, 2, "tensorflow_rank.py", "keras", "case_training_is_that_of_one_process_with_all_data")

    def test_gradients_are_reduced_beside_the_backward_pass(self):
        path = os.path.join(self.folder, "timeline.json")
        run = self.ruedarun("-np", "2", "--virtual-nodes", "2", "--timeline-filename", path, PYTHON,
                            os.path.join(FOLDER, "tensorflow_overlap.py"), "12")
        self.assertEqual(run.exit_code(120), 0, run.output())
        self.assertGreater(hidden_share(path), 0.5)

    def test_gradients_in_a_random_order_with_one_thread(self):
        self.run_ranks(2, 2, "tensorflow_random_order.py", str(harness.amount(200, 1000)))

    def test_the_weights_of_all_ranks_are_equal_after_each_epoch(self):
        self.run_ranks(4, 2, "tensorflow_fit.py")

    def test_the_example(self):
        run = self.ruedarun("-np", "4", "--virtual-nodes", "2", PYTHON, DIGITS, "--require", "0.93")
        self.assertEqual(run.exit_code(300), 0, run.output())

    def leave_files(self):
        """Has processes put their temporary files where the test does not look for what is left: TensorFlow writes what it makes of
        functions into files, which stay if it is killed."""
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        self.env["TMPDIR"] = folder

    def test_a_rank_that_skips_a_variable_is_named(self):
        self.leave_files()
        run = self.ruedarun("-np", "2", "--virtual-nodes", "2", "--stall-shutdown-seconds", "3", PYTHON,
                            os.path.join(FOLDER, "tensorflow_death_rank.py"), "skips")
        self.assertNotEqual(run.exit_code(120), 0, run.output())
        caught, = run.wait_for(r"^\[0\] caught (\w+): (.*)")
        self.assertEqual(caught.group(1), "AbortedError", run.output())
        self.assertRegex(caught.group(2), r"DistributedGradientTape\.1\.only_here\" was submitted .* not by rank 1\b")

    def test_a_rank_that_is_killed_is_named(self):
        self.leave_files()
        for how in ("graph", "eager", "fit"):
            with self.subTest(how):
                run = self.ruedarun("-np", "3", "--virtual-nodes", "2", PYTHON, os.path.join(FOLDER, "tensorflow_death_rank.py"), how)
                self.assertNotEqual(run.exit_code(120), 0, run.output())
                for rank in (0, 1):
                    caught, = run.wait_for(rf"^\[{rank}\] caught (\w+): .*rank 2\b")
                    self.assertEqual(caught.group(1), "HorovodInternalError" if how == "eager" else "AbortedError")


if __name__ == "__main__":
    harness.main()
