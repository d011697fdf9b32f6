#!/usr/bin/python3
"""Tests the examples that people copy: each runs on several nodes, and does what it says."""

import ast
import os
import re
import subprocess
import unittest

import harness
from harness import PYTHON, SOURCE, IntegrationTest, program

FOLDER = os.path.join(SOURCE, "client", "python", "examples")
HAS_TORCH = subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode == 0
needs_torch = unittest.skipUnless(HAS_TORCH, "PyTorch is not installed (deploy/packages.sh test installs it)")


class ExamplesTest(IntegrationTest):

    def run_on(self, ranks, nodes, *command):
        """Returns what an example said."""
        run = self.ruedarun("-np", str(ranks), "--virtual-nodes", str(nodes), *command)
        self.assertEqual(run.exit_code(), 0, run.output())
        return run.output()

    def run_script(self, ranks, nodes, name, *arguments):
        return self.run_on(ranks, nodes, PYTHON, os.path.join(FOLDER, name), *arguments)

    def accuracy_in(self, output):
        return float(re.findall(r"accuracy (\d\.\d+)", output)[-1])

    def test_a_cpp_trainer_learns_as_one_process_does(self):
        losses = []
        for ranks, nodes in ((1, 1), (4, 2)):
            output = self.run_on(ranks, nodes, program("rueda_example_train"))
            found = re.findall(r"rank \d of \d: loss (\S+) after", output)
            self.assertEqual(len(found), ranks, output)
            losses += map(float, found)
        self.assertLess(max(losses) - min(losses), 1e-6, losses)

    @needs_torch
    def test_a_script_in_horovods_form_is_as_accurate_as_one_process(self):
        """The same rows are in a step of four ranks and in one of a single process."""
        together = self.run_script(4, 2, "torch_digits.py", "--workers", "1")
        self.assertRegex(together, "epoch 12: test loss")
        alone = self.run_script(1, 1, "torch_digits.py", "--batch-size", "64", "--lr", "0.08")
        self.assertGreater(self.accuracy_in(alone), 0.95, alone)
        self.assertGreaterEqual(self.accuracy_in(together), self.accuracy_in(alone) - 0.02, together)

    def test_nothing_but_the_import_tells_that_it_is_not_horovod(self):
        with open(os.path.join(FOLDER, "torch_digits.py"), encoding="utf-8") as file:
            tree = ast.parse(file.read())
        tree.body.pop(0)  # the docstring
        imports = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
        self.assertEqual([name for name in imports if "rueda" in name], ["rueda.torch"])
        self.assertEqual(ast.dump(tree).count("rueda"), 1)

    @needs_torch
    def test_a_residual_network(self):
        output = self.run_script(2, 2, "torch_resnet.py", "--model", "resnet18", "--batch-size", "2", "--image-size",
                                 "64", "--warmup-steps", "1", "--rounds", "1", "--steps-per-round", "2")
        self.assertRegex(output, "11,689,512 parameters")  # torchvision's resnet18 has this number
        self.assertRegex(output, r"images a second: \d+\.\d a rank")

    @needs_torch
    def test_mixed_precision(self):
        self.run_script(2, 2, "torch_mixed_precision.py")

    @needs_torch
    def test_accumulation_reduces_once_a_step(self):
        output = self.run_script(2, 2, "torch_accumulation.py")
        self.assertRegex(output, "8 tensors reduced in a step of 4 passes")

    @needs_torch
    def test_process_sets(self):
        output = self.run_script(4, 2, "torch_process_sets.py")
        alone = re.search(r"of \[0, 2\]: (\S+), of \[1, 3\]: (\S+),", output)
        self.assertNotEqual(alone.group(1), alone.group(2), output)

    @needs_torch
    def test_join(self):
        output = self.run_script(4, 2, "torch_join.py")
        counts = sorted(map(int, re.findall(r"had (\d+) batches an epoch; rank 3 joined last", output)))
        self.assertEqual(counts, [9, 18, 27, 36], output)


if __name__ == "__main__":
    harness.main()
