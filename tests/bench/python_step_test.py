#!/usr/bin/python3
"""Tests bench/python_step.py, without running a job. Argument: its folder."""

import sys
import unittest
from pathlib import Path
from unittest import mock

BENCH = Path(sys.argv.pop(1))
sys.dont_write_bytecode = True
sys.path.insert(0, str(BENCH))

import python_step  # noqa: E402


class PythonStepTest(unittest.TestCase):
    def test_the_ways_differ_in_what_they_run(self):
        options = python_step.parse(["--ranks", "3", "--steps", "7"])
        bench, each, grouped = (python_step.command_of(options, "resnet50", way, "/j") for way in python_step.WAYS)
        self.assertIn("/j", bench)
        self.assertEqual(bench[bench.index("--iters") + 1], "7")
        self.assertNotIn("--grouped", each)
        self.assertEqual([word for word in grouped if word != "--grouped"], each)
        self.assertEqual(each[each.index("--steps") + 1], "7")

    def test_what_is_wrong_or_copied_is_an_error(self):
        for result in ({"wrong": 1}, {"wrong": 0, "copied": 4}):
            with self.assertRaises(python_step.JobError):
                python_step.checked(result, "resnet50", "each")
        self.assertEqual(python_step.checked({"wrong": 0, "copied": 0}, "m", "each"), {"wrong": 0, "copied": 0})

    def test_the_sets_must_be_the_same(self):
        options = python_step.parse(["--rounds", "1", "--only", "small1000"])
        results = [{"seconds": 1.0, "tensors": 1000, "bytes": 1} for _ in range(2)]
        with mock.patch.object(python_step, "run", side_effect=[*results, {**results[0], "bytes": 2}]):
            with self.assertRaisesRegex(python_step.JobError, "not the same set"):
                python_step.measure(options)

    def test_the_table_says_how_much_more(self):
        times = {("resnet50", "rueda-bench"): [0.030, 0.040, 0.050], ("resnet50", "each"): [0.041, 0.042, 0.100],
                 ("resnet50", "grouped"): [0.039]}
        text = python_step.table(times, ["resnet50"])
        self.assertIn("| resnet50 | 40.000 | 42.000 (+2.000, +5.0%) | 39.000 (-1.000, -2.5%) |", text)


if __name__ == "__main__":
    unittest.main()
