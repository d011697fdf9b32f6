#!/usr/bin/python3
"""Tests bench/jax_allreduce.py, without running a job. Argument: its folder."""

import contextlib
import io
import sys
import unittest
from pathlib import Path
from unittest import mock

BENCH = Path(sys.argv.pop(1))
sys.dont_write_bytecode = True
sys.path.insert(0, str(BENCH))

import jax_allreduce  # noqa: E402


class JaxAllreduceTest(unittest.TestCase):
    def test_the_slowest_rank_counts(self):
        options = jax_allreduce.parse(["py", "--ranks", "2", "--steps", "7"])
        with mock.patch.object(jax_allreduce, "run_job", return_value='{"seconds": 0.1}\nnoise\n{"seconds": 0.3}\n') as run_job:
            self.assertEqual(jax_allreduce.run(options, "64M", "gloo"), 0.3)
        command = run_job.call_args.args[0]
        self.assertEqual(command[-3:], ["gloo", str(64 << 20), "7"])
        self.assertIn("py", command)
        with mock.patch.object(jax_allreduce, "run_job", return_value='{"seconds": 0.1}\n'):
            with self.assertRaisesRegex(jax_allreduce.JobError, "1 of 2 ranks"):
                jax_allreduce.run(options, "64M", "gloo")

    def test_sizes(self):
        self.assertEqual([jax_allreduce.bytes_of(text) for text in ("12", "4K", "64M")], [12, 4096, 64 << 20])
        for text in ("0", "M", "4G", "-1"):
            with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit):
                jax_allreduce.parse(["py", "--sizes", text])

    def test_the_table_has_ratios_of_medians(self):
        times = {("64M", "rueda"): [0.01, 0.02, 0.9], ("64M", "rueda-eager"): [0.01], ("64M", "mpi"): [0.04, 0.05, 0.03],
                 ("64M", "gloo"): [0.08, 0.07, 0.1]}
        self.assertIn("| 64M | 20.000 ms | 10.000 ms | 40.000 ms | 80.000 ms | 4.0 × | 8.0 × | 2.0 × |",
                      jax_allreduce.table(times, ["64M"]))


if __name__ == "__main__":
    unittest.main()
