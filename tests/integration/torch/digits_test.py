#!/usr/bin/python3
"""Tests the main job: gradients of real training averaged over nodes equal one process's."""

import os
import re

import harness
from harness import PYTHON, SOURCE, IntegrationTest

DIGITS = os.path.join(SOURCE, "client", "python", "examples", "digits.py")


class DigitsTest(IntegrationTest):

    def train(self, ranks, nodes):
        run = self.ruedarun("-np", str(ranks), "--virtual-nodes", str(nodes), PYTHON, DIGITS, "--check-reference")
        self.assertEqual(run.exit_code(), 0, run.output())
        accuracies = [float(text) for text in re.findall(r"test accuracy (0\.\d+)", run.output())]
        self.assertGreater(len(accuracies), 1, run.output())
        self.assertGreater(accuracies[-1], 0.95)

    def test_four_ranks_on_two_nodes(self):
        self.train(4, 2)

    def test_three_ranks_on_two_nodes(self):
        self.train(3, 2)


if __name__ == "__main__":
    harness.main()
