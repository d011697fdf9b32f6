#!/usr/bin/python3
"""Tests bench/declared.py. Arguments: its folder, and the build folder. Without "long" in RUEDA_DECLARED_TEST no job is run."""

import argparse
import contextlib
import importlib.util
import io
import os
import sys
import unittest
from pathlib import Path
from unittest import mock

BENCH, BUILD = (Path(sys.argv.pop(1)) for _ in range(2))
sys.dont_write_bytecode = True
sys.path.insert(0, str(BENCH))

import declared  # noqa: E402

OPTIONS = argparse.Namespace(ranks=4, nodes=2)


def result(seconds, operations=5):
    return {"seconds": seconds, "operations": operations, "average": 2.5}


class DeclaredTest(unittest.TestCase):
    def test_the_sides_differ_in_the_switch_alone_and_take_turns(self):
        started = []

        def job(command, _, what, variables):
            started.append((what, command, variables))
            return '{"seconds": 0.1, "operations": 5, "average": 2.5}\n'

        options = declared.parse(["--rounds", "2", "--step-ms", "20", "--busy-ok"])
        with mock.patch.object(declared, "run_job", job), mock.patch.object(declared.cases, "schedule_of", lambda *_: "s"), \
             contextlib.redirect_stderr(io.StringIO()):
            found = declared.measure(options)
        self.assertEqual([what for what, _, _ in started], ["declared, 20 ms", "learned, 20 ms", "learned, 20 ms", "declared, 20 ms"])
        self.assertEqual(started[0][1], started[1][1])
        self.assertEqual([variables for _, _, variables in started[:2]], [{"RUEDA_TORCH_DECLARE": "1"}, {"RUEDA_TORCH_DECLARE": "0"}])
        self.assertEqual({key: len(results) for key, results in found.items()}, {(20.0, "declared"): 2, (20.0, "learned"): 2})

    def test_a_ratio_is_that_of_a_round(self):
        """The machine was at another speed in each round."""
        found = {(50.0, "declared"): [result(0.09), result(0.20), result(0.11)],
                 (50.0, "learned"): [result(0.10, 7), result(0.20, 9), result(0.10, 7)]}
        self.assertIn("| 50 | 110.0 | 100.0 | 1.00 (0.90..1.10) | 5 | 7..9 |", declared.table(found))

    def test_a_gradient_that_is_missing_in_the_average_is_noticed(self):
        with self.assertRaisesRegex(declared.JobError, "the average of the gradients is 2.0, not 2.5"):
            declared.checked({**result(0.1), "average": 2.0}, OPTIONS, "declared")

    def test_steps_without_a_plan_are_no_measurement(self):
        with self.assertRaisesRegex(declared.JobError, "declared: no plan was in force"):
            declared.checked(result(0.1, operations=0), OPTIONS, "declared")

    def test_wrong_arguments(self):
        for wrong in (["--rounds", "0"], ["--step-ms", "0"], ["--warmup", "0"], ["--model", "googlenet"]):
            with self.subTest(wrong), mock.patch("sys.stderr"), self.assertRaises(SystemExit) as end:
                declared.parse(wrong)
            self.assertEqual(end.exception.code, 2)

    @unittest.skipUnless(os.environ.get("RUEDA_DECLARED_TEST") == "long", "runs jobs")
    @unittest.skipUnless(importlib.util.find_spec("torchvision"), "no torchvision: deploy/packages.sh bench")
    def test_both_plans_are_in_force_at_the_end(self):
        options = declared.parse(["--build", str(BUILD), "--model", "resnet50", "--rounds", "1", "--steps", "3", "--warmup", "6",
                                  "--step-ms", "300"])
        with contextlib.redirect_stderr(io.StringIO()):
            found = declared.measure(options)
        (as_declared,), (as_learned,) = (found[300.0, side] for side in declared.SIDES)
        self.assertEqual(as_declared["operations"], 5)  # 102 MB, 25 MiB each
        self.assertNotEqual(as_learned["operations"], 5)


if __name__ == "__main__":
    unittest.main(verbosity=2)
