#!/usr/bin/python3
"""Tests rueda.torch under ruedarun, on one rank and on several, on one node and on two."""

import os
import subprocess
import unittest

import harness
from harness import IntegrationTest

FOLDER = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.environ.get("RUEDA_TEST_PYTHON", harness.PYTHON)  # as in distributed_test.py
HAS_TORCH = subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode == 0


@unittest.skipUnless(HAS_TORCH, "PyTorch is not installed (deploy/packages.sh test installs it)")
class TorchTest(IntegrationTest):

    def run_cases(self, module, ranks, nodes, *cases):
        run = self.ruedarun("-np", str(ranks), "--virtual-nodes", str(nodes), PYTHON,
                            os.path.join(FOLDER, "torch_rank.py"), module, *cases)
        self.assertEqual(run.exit_code(), 0, run.output())
        for rank in range(ranks):
            self.assertIn(f"[{rank}] ok", run.output().split("\n"))

    def test_collectives(self):
        more = ((2, 2), (4, 1)) if os.environ.get("RUEDA_ALL_LAYOUTS") == "1" else ()
        for ranks, nodes in (*harness.amount([(1, 1), (4, 2)], [(1, 1), (2, 1), (4, 2)]), *more):
            with self.subTest(ranks=ranks, nodes=nodes):
                self.run_cases("collectives", ranks, nodes)

    def test_gradients(self):
        self.run_cases("gradients", 3, 2)

    def test_what_once_trained_wrongly_in_silence(self):
        for ranks, nodes in harness.amount([(2, 2)], [(1, 1), (2, 2), (4, 2)]):
            with self.subTest(ranks=ranks, nodes=nodes):
                self.run_cases("silent", ranks, nodes)

    def test_a_matrix_of_ways_to_use_an_optimizer(self):
        self.env["RUEDA_MATRIX_EPISODES"] = str(harness.amount(60, 600))
        self.env["RUEDA_MATRIX_SEED"] = os.environ.get("RUEDA_MATRIX_SEED", "1")
        for ranks, nodes in harness.amount([(2, 2)], [(1, 1), (2, 2), (4, 2)]):
            with self.subTest(ranks=ranks, nodes=nodes):
                self.run_cases("matrix", ranks, nodes)

    def test_tensors_that_come_again(self):
        for ranks, nodes in harness.amount([(3, 2)], [(1, 1), (3, 2)]):
            with self.subTest(ranks=ranks, nodes=nodes):
                self.run_cases("again", ranks, nodes)

    def test_plans_declared_from_the_graph(self):
        self.run_cases("declared", 3, 2)

    def test_optimizer(self):
        for ranks, nodes in harness.amount([(4, 2)], [(1, 1), (4, 2)]):
            with self.subTest(ranks=ranks, nodes=nodes):
                self.run_cases("optimizer", ranks, nodes)
        self.run_cases("optimizer", 2, 2, "case_compressed_gradients_are_not_copied")

    def test_what_horovods_users_stumbled_over(self):
        for ranks, nodes in harness.amount([(2, 2)], [(1, 1), (2, 2), (4, 2)]):
            with self.subTest(ranks=ranks, nodes=nodes):
                self.run_cases("horovod", ranks, nodes)

    def test_elastic_and_forks(self):
        self.run_cases("elastic", 4, 2)


if __name__ == "__main__":
    harness.main()
