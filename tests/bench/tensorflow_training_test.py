#!/usr/bin/python3
"""Tests bench/tensorflow_training.py, without running a job. Argument: its folder."""

import contextlib
import io
import json
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
            result = tensorflow_training.run(options, "strategy")
        return result, run_job.call_args.args[0]

    def test_the_slowest_rank_counts(self):
        result, command = self.run_on(said(2.0, 5.5) + "noise\n" + said(1.5, 5.5))
        self.assertEqual(result["steps_a_second"], 1.5)
        given = json.loads(command[-1])
        self.assertEqual([given[name] for name in ("way", "layers", "width", "batch", "steps", "warmup")],
                         ["strategy", 6, 2048, 8, 7, 3])
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

    def test_the_table_has_medians_and_compares_rounds(self):
        options = tensorflow_training.parse(["py"])
        results = {way: [{"steps_a_second": rate, "parameters": 25165824} for rate in rates]
                   for way, rates in {"alone": [8.0, 8.0, 8.0], "none": [8.0, 10.0, 8.0], "rueda": [4.0, 6.0, 5.0],
                                      "strategy": [1.0, 2.0, 2.0]}.items()}
        text = tensorflow_training.table(results, options)
        self.assertIn("25,165,824 parameters, 8 rows a rank", text)
        # 125, 66.7 and 75 ms of a step come on top of 125, 100 and 125: 50, 40 and 37.5 % of it.
        self.assertIn("| Rueda | 5.00 | 80 | 60 % | 200.0 | 75.0 (40 %) |", text)
        self.assertIn("Rueda makes 3.0 × as many steps as the strategy (2.5 to 4.0).", text)


if __name__ == "__main__":
    unittest.main()
