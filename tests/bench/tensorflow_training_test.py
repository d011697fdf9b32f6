#!/usr/bin/python3
"""Tests bench/tensorflow_training.py, without running a job. Argument: its folder."""

import contextlib
import io
import sys
import unittest
from pathlib import Path
from unittest import mock

BENCH = Path(sys.argv.pop(1))
sys.dont_write_bytecode = True
sys.path.insert(0, str(BENCH))

import tensorflow_training  # noqa: E402


def said(rate, total):
    return f'{{"steps_a_second": {rate}, "parameters": 1000, "sum": {total}}}\n'


class TensorFlowTrainingTest(unittest.TestCase):
    def run_on(self, output):
        options = tensorflow_training.parse(["py", "--ranks", "2", "--steps", "7", "--warmup", "3"])
        with mock.patch.object(tensorflow_training, "run_job", return_value=output) as run_job:
            rate = tensorflow_training.run(options, "strategy")
        return rate, run_job.call_args.args[0]

    def test_the_slowest_rank_counts(self):
        rate, command = self.run_on(said(2.0, 5.5) + "noise\n" + said(1.5, 5.5))
        self.assertEqual(rate, 1.5)
        self.assertEqual(command[-7:-1], ["strategy", "6", "2048", "8", "7", "3"])
        self.assertIn("py", command)

    def test_ranks_that_are_missing_or_differ_are_an_error(self):
        with self.assertRaisesRegex(tensorflow_training.JobError, "1 of 2 ranks"):
            self.run_on(said(2.0, 5.5))
        with self.assertRaisesRegex(tensorflow_training.JobError, "weights of ranks differ"):
            self.run_on(said(2.0, 5.5) + said(2.0, 5.6))

    def test_numbers_are_positive(self):
        for name in ("ranks", "layers", "width", "batch", "warmup", "steps", "rounds"):
            with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit):
                tensorflow_training.parse(["py", f"--{name}", "0"])

    def test_the_table_has_the_median_of_ratios(self):
        options = tensorflow_training.parse(["py"])
        options.parameters = 25165824
        rates = {"rueda": [4.0, 6.0, 5.0], "strategy": [1.0, 2.0, 2.0]}
        self.assertIn("| 25,165,824 | 8 | 5.00 | 2.00 | 3.0 × |", tensorflow_training.table(rates, options))


if __name__ == "__main__":
    unittest.main()
