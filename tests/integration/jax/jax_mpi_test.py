#!/usr/bin/python3
"""Tests programs that know nothing of Rueda, with JAX's own collectives on librueda_mpi.so, under ruedarun. They need JAX:
tests/run.sh --jax brings it."""

import os
import subprocess
import unittest

import harness
from harness import BUILD, IntegrationTest

FOLDER = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.environ.get("RUEDA_TEST_PYTHON", harness.PYTHON)
HAS_JAX = subprocess.run([PYTHON, "-c", "import jax.ffi"], capture_output=True, check=False).returncode == 0
LIBRARY = os.path.join(BUILD, "lib", "librueda_mpi.so")
OVER_RUEDA = {"JAX_CPU_COLLECTIVES_IMPLEMENTATION": "mpi", "MPITRAMPOLINE_LIB": LIBRARY}
OVER_GLOO = {"JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo"}
DEATH_S = 10  # what a killed rank may cost the others until they know


@unittest.skipUnless(HAS_JAX, "JAX is not there (tests/run.sh --jax brings it)")
class JaxMpiTest(IntegrationTest):

    def start_ranks(self, ranks, nodes, part, environment=None, **more):
        return self.ruedarun("-np", str(ranks), "--virtual-nodes", str(nodes), PYTHON, os.path.join(FOLDER, "jax_mpi_rank.py"), part,
                             extra_env={**(OVER_RUEDA if environment is None else environment), **more})

    def run_ranks(self, ranks, nodes, part, environment=None, **more):
        run = self.start_ranks(ranks, nodes, part, environment, **more)
        self.assertEqual(run.exit_code(300), 0, run.output())
        for rank in range(ranks):
            self.assertIn(f"[{rank}] ok", run.output().split("\n"))
        return run

    def test_collectives_on_two_ranks(self):
        self.run_ranks(2, 1, "collectives")

    def test_collectives_of_three_ranks_on_two_nodes(self):
        self.run_ranks(3, 2, "collectives")

    def test_rows_and_columns_of_four_ranks(self):
        self.run_ranks(4, 2, "mesh")

    def test_many_collectives_in_one_program(self):
        self.run_ranks(4, 2, "pool")

    def test_many_collectives_with_a_pool_of_one_thread(self):
        self.run_ranks(4, 2, "pool", NPROC="1", XLA_FLAGS="--xla_cpu_multi_thread_eigen=false")

    def test_a_repeated_reduce_scatter_is_never_wrong(self):
        """It was under Gloo (jax-ml/jax#40830); how often it is today is printed."""
        run = self.run_ranks(4, 2, "repeat")
        self.assertEqual(run.output().count("wrong 0 of 150"), 4, run.output())
        gloo = self.start_ranks(4, 2, "repeat", OVER_GLOO)
        gloo.exit_code(300)
        print("over Gloo: " + ", ".join(line for line in sorted(gloo.output().split("\n")) if "wrong" in line), flush=True)

    def test_two_sums_of_a_step_again_and_again(self):
        self.run_ranks(2, 2, "steps", RUEDA_JAX_STEPS=str(harness.amount(1000, 10_000)))

    def test_a_killed_rank_is_an_error_that_names_it(self):
        for nodes in (1, 2):
            with self.subTest(nodes=nodes):
                run = self.start_ranks(3, nodes, "killed")
                self.assertNotEqual(run.exit_code(), 0, run.output())
                for rank in (0, 2):
                    found, = run.wait_for(rf"^\[{rank}\] caught after ([0-9.]+) s: .*RUEDA_ERR_RANK_LOST: .*rank 1\b")
                    self.assertLess(float(found.group(1)), DEATH_S * harness.SLOWNESS)

    def test_processes_that_ruedarun_has_not_started_get_no_sums(self):
        """Each would be a job of one, whose sum is its own value."""
        processes = [self.start([PYTHON, os.path.join(FOLDER, "jax_mpi_rank.py"), "collectives"],
                                extra_env={**OVER_RUEDA, "RANK": str(rank), "WORLD_SIZE": "2", **meeting})
                     for meeting in [{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(harness.free_port())}] for rank in range(2)]
        for process in processes:
            self.assertNotEqual(process.exit_code(), 0, process.output())
            process.wait_for(r"MPI_ERR_COMM: .*nobody has started this process as a rank of Rueda: start it by ruedarun")

    def test_the_environment_is_printed_for_a_shell(self):
        run = self.start([PYTHON, "-m", "rueda.jax"], extra_env={"JAX_PLATFORMS": "cpu"})
        self.assertEqual(run.exit_code(), 0, run.output())
        self.assertEqual(run.lines, [f"export {name}={OVER_RUEDA[name]}" for name in ("JAX_CPU_COLLECTIVES_IMPLEMENTATION", "MPITRAMPOLINE_LIB")])
        self.env["RUEDA_LIBRARY"] = os.path.join(self.folder, "librueda.so")
        run = self.start([PYTHON, "-m", "rueda.jax"], extra_env={"JAX_PLATFORMS": "cpu"})
        self.assertEqual(run.exit_code(), 1, run.output())
        run.wait_for(rf"^librueda_mpi\.so was not found beside librueda; looked at: {self.folder}/librueda_mpi\.so \(no such file\)")


if __name__ == "__main__":
    harness.main()
