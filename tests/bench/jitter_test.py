#!/usr/bin/python3
"""Tests bench/jitter.py. Arguments: its folder, and the build folder."""

import contextlib
import io
import os
import sys
import unittest
from pathlib import Path
from unittest import mock

BENCH, BUILD = (Path(sys.argv.pop(1)) for _ in range(2))
sys.dont_write_bytecode = True
sys.path.insert(0, str(BENCH))

import jitter  # noqa: E402


class JitterTest(unittest.TestCase):
    def test_a_percentile_is_a_time_that_was_measured(self):
        times = [float(i) for i in range(100, 0, -1)]
        self.assertEqual([jitter.percentile(times, percent) for percent in (50, 99, 100)], [50.0, 99.0, 100.0])
        self.assertEqual(jitter.percentile([3.0], 99), 3.0)
        self.assertEqual(jitter.percentile([1.0, 2.0, 3.0], 99), 3.0)

    def test_only_loops_that_are_apart_are_bound(self):
        options = jitter.parse(["--build", str(BUILD)])
        with mock.patch.object(jitter, "run_job", return_value='{"seconds": [1.0]}') as run_job, \
                mock.patch.object(jitter, "daemon_of") as daemon_of, \
                mock.patch.object(jitter, "load_of") as load_of, mock.patch.object(jitter, "hogs") as hogs:
            daemon_of.return_value = contextlib.nullcontext(("@socket", {}))
            load_of.side_effect = hogs.side_effect = lambda *_: contextlib.nullcontext()
            for way in jitter.WAYS:
                self.assertEqual(jitter.run(options, way, 7, "1"), [1.0])
        bound = ["--bind" in call.args[0] for call in run_job.call_args_list]
        self.assertEqual(bound, [way == "apart" for way in jitter.WAYS])
        self.assertEqual([call.args[2] for call in daemon_of.call_args_list],
                         ["1" if way == "apart" else "" for way in jitter.WAYS])
        self.assertEqual([call.args[2] for call in load_of.call_args_list], ["1", ""])
        self.assertEqual(hogs.call_count, 1)

    def test_without_a_core_for_the_daemon_nothing_is_apart_and_that_is_said(self):
        options = jitter.parse(["--build", str(BUILD), "--rounds", "1", "--loops", str(len(os.sched_getaffinity(0)))])
        said = io.StringIO()
        with mock.patch.object(jitter, "run_job", return_value='{"work": 7}'), \
                mock.patch.object(jitter, "run", return_value=[1.0, 2.0]), contextlib.redirect_stderr(said):
            found = jitter.measure(options)
        self.assertEqual(list(found), ["alone", "together", "polling"])
        self.assertIn("there is no core left", said.getvalue())

    def test_the_table_has_multiples_of_the_median_alone(self):
        found = {"alone": {"p50": [0.02, 0.01, 0.03], "p99": [0.022], "max": [0.03]},
                 "apart": {"p50": [0.02], "p99": [0.024], "max": [0.05]}}
        text = jitter.table(found)
        self.assertIn("| alone | 20.00 ms (1.00) | 22.00 ms (1.10) | 30.00 ms (1.50) |", text)
        self.assertIn("| apart | 20.00 ms (1.00) | 24.00 ms (1.20) | 50.00 ms (2.50) |", text)

    def test_all_ways_run(self):
        options = jitter.parse(["--build", str(BUILD), "--rounds", "1", "--steps", "5", "--step-ms", "2"])
        found = jitter.measure(options)
        self.assertLessEqual({"alone", "together", "polling"}, set(found))
        self.assertEqual("apart" in found, jitter.daemon_cpus(options.loops) is not None)
        for figures in found.values():
            self.assertLess(0, figures["p50"][0])
            self.assertLessEqual(figures["p50"], figures["p99"])
            self.assertLessEqual(figures["p99"], figures["max"])


if __name__ == "__main__":
    unittest.main()
