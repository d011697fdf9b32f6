#!/usr/bin/python3
"""Tests librueda_mpi.so without JAX, on four ranks on one node and on two: ranks/mpi_rank.py calls what jaxlib calls."""

import os

import harness
from harness import BUILD, PYTHON, RANKS, IntegrationTest


class MpiTest(IntegrationTest):

    def start_ranks(self, part, nodes):
        return self.ruedarun("-np", "4", "--virtual-nodes", str(nodes), PYTHON, os.path.join(RANKS, "mpi_rank.py"),
                             os.path.join(BUILD, "lib", "librueda_mpi.so"), part)

    def assert_says_ok(self, run, ranks):
        for rank in ranks:
            self.assertIn(f"[{rank}] ok", run.output().split("\n"))

    def test_what_jaxlib_calls(self):
        for nodes in (1, 2):
            with self.subTest(nodes=nodes):
                run = self.start_ranks("right", nodes)
                self.assertEqual(run.exit_code(), 0, run.output())
                self.assert_says_ok(run, range(4))

    def test_what_is_wrong_or_missing_is_said(self):
        run = self.start_ranks("wrong", 2)
        self.assertEqual(run.exit_code(), 0, run.output())
        self.assert_says_ok(run, range(4))
        run.wait_for(r"librueda_mpi: MPI_Barrier is not there: ", count=4)

    def test_a_killed_rank_is_named_by_all_that_follows(self):
        run = self.start_ranks("killed", 2)
        self.assertNotEqual(run.exit_code(), 0, run.output())
        for rank in (0, 2, 3):
            run.wait_for(rf"^\[{rank}\] ok$")


if __name__ == "__main__":
    harness.main()
