#!/usr/bin/python3
"""Tests bench/train.py. Arguments: its folder, and the build folder. Without "long" in RUEDA_TRAINING_TEST no job is run."""

import argparse
import contextlib
import importlib.util
import io
import os
import sys
import unittest
import unittest.mock
from pathlib import Path

BENCH, BUILD = (Path(sys.argv.pop(1)) for _ in range(2))
sys.dont_write_bytecode = True
sys.path.insert(0, str(BENCH))

import train  # noqa: E402
from comparing.training_jobs import JobError  # noqa: E402
from training import cases, tables  # noqa: E402

OPTIONS = argparse.Namespace(models=["resnet50"], sides=("hvd", "ddp-gloo"), ranks=4, nodes=2, step_s=0.05)


def result(seconds, **parts):
    return {"seconds": seconds, "phases": parts}


class TrainingTest(unittest.TestCase):
    def test_a_wrapper_switches_on_what_its_name_says(self):
        self.assertEqual(cases.wrapper("none", "one-step", "ring"),
                         (("--reducer", "device", "--algorithm", "ring", "--fusion-threshold", "0"),
                          {"RUEDA_TORCH_OVERLAP": "0"}))
        self.assertEqual(cases.wrapper("P+F", "two-step", "central"),
                         (("--reducer", "node", "--algorithm", "central"), {"RUEDA_TORCH_OVERLAP": "1"}))
        every = cases.wrappers(OPTIONS)
        self.assertEqual(len({(case.flags, tuple(case.variables.items())) for case in every}), 16)

    def test_each_kind_of_work_is_done_once_without_communication(self):
        self.assertEqual([(case.label, columns, case.ranks) for case, columns in train.jobs_of(cases.scaling(OPTIONS))][:5],
                         [("local", [f"{ranks} on {nodes}"], ranks) for ranks, nodes in cases.PLACES])
        sizes = cases.fusion(OPTIONS)
        (alone, columns), *others = train.jobs_of(sizes)
        self.assertEqual((alone.side, alone.flags, alone.variables), ("local", (), {}))
        self.assertEqual(columns, [str(size) for size in cases.FUSION_BYTES])
        self.assertEqual(others, [(case, [case.column]) for case in sizes])

    def test_loops_are_those_of_the_daemons(self):
        self.assertEqual([case.flags[-1] for case in cases.loops(OPTIONS)[:4]],
                         [f"--daemon-arg=--data-loops={count}" for count in (0, 1, 2, 4)])

    def test_the_daemons_take_the_congestion_control_that_gloo_has(self):
        options = argparse.Namespace(**vars(OPTIONS), build=Path("b"), steps=1, warmup=1)
        for case in (*cases.sides(OPTIONS), *cases.loops(OPTIONS)):
            self.assertIn("--daemon-arg=--tcp-congestion=system", cases.command_of(case, options, "s"))

    def test_a_gradient_that_is_missing_in_the_average_is_noticed(self):
        case = cases.sides(OPTIONS)[0]
        self.assertEqual(cases.checked({"sum": 25.0, "elements": 10}, case)["sum"], 25.0)
        with self.assertRaisesRegex(JobError, "the gradients' sum is 20.0, not 25.0"):
            cases.checked({"sum": 20.0, "elements": 10}, case)

    def test_exposed_communication_is_what_a_step_takes_longer(self):
        found = {("local", "resnet50"): [result(0.050), result(0.052), result(0.051)],
                 ("hvd", "resnet50"): [result(0.060), result(0.058), result(0.061)]}
        self.assertIn("| hvd | 60.0 (+9.0, 85%) |", tables.steps(found))
        self.assertIn("| local | 51.0 |", tables.steps(found))

    def test_a_threshold_has_the_spread_of_its_rounds(self):
        found = {("hvd", "64 KiB"): [result(0.08), result(0.07), result(0.11)]}
        self.assertIn("| hvd | 80.0 (70.0..110.0) |", tables.spreads(found))

    def test_efficiency_is_a_share_of_one_rank_alone(self):
        found = {("local", "1 on 1"): [result(0.36)], ("hvd", "4 on 2"): [result(0.40)]}
        self.assertIn("400.0 ms (90%)", tables.efficiencies(found))

    def test_a_line_for_each_part_of_a_step(self):
        found = {("hvd", "resnet50"): [result(0.06, forward=0.02, backward=0.03)]}
        self.assertIn("| hvd, resnet50 | 20.00 | 30.00 | 60.0 |", tables.phases(found))

    def test_a_job_that_was_disturbed_is_run_again(self):
        noises = iter([0.5, 0.0, 0.5, 0.5])
        meter = unittest.mock.Mock(cores=lambda: next(noises))
        options = argparse.Namespace(repeats=1)
        with unittest.mock.patch.object(train, "NoiseMeter", lambda: meter), \
             unittest.mock.patch.object(train.cases, "run", lambda *_: result(0.05)), \
             contextlib.redirect_stderr(io.StringIO()):
            disturbed = [train.run_quietly(None, options, None, "")["disturbed"] for _ in range(2)]
        self.assertEqual(disturbed, [False, True])
        self.assertIsNone(next(noises, None))

    def test_wrong_command_lines(self):
        for line in (["fusion", "--models", "vgg16", "resnet50"], ["sides", "--step-ms", "0"], ["sides", "--repeats", "-1"],
                     ["nothing"]):
            with self.subTest(line=line), contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit):
                train.parse(line)

    @unittest.skipUnless(os.environ.get("RUEDA_TRAINING_TEST") == "long", "runs jobs")
    @unittest.skipUnless(importlib.util.find_spec("torchvision"), "no torchvision: deploy/packages.sh bench")
    def test_every_side_trains(self):
        for more in ((), ("--computes", "--data", "digits", "--pixels", "32", "--batch", "2")):
            options = train.parse(["sides", "--build", str(BUILD), "--models", "mobilenet", "--rounds", "1", "--steps", "4",
                                   "--warmup", "2", "--phases", *more])
            found, _ = train.measure(options)
            self.assertEqual({label for label, _ in found}, {"local", *cases.SIDES})
            with contextlib.redirect_stdout(io.StringIO()) as said:
                train.report(found, options)
            self.assertIn("| ddp-arena, mobilenet |", said.getvalue())


if __name__ == "__main__":
    unittest.main()
