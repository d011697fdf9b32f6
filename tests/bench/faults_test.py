#!/usr/bin/python3
"""Tests bench/faults.py and bench/elastic_tax.py. Arguments: its folder, and the build folder."""

import contextlib
import io
import sys
import unittest
from pathlib import Path
from unittest import mock

BENCH, BUILD = (Path(sys.argv.pop(1)) for _ in range(2))
sys.dont_write_bytecode = True
sys.path.insert(0, str(BENCH))

import elastic_tax  # noqa: E402
import faults  # noqa: E402
from faulting.events import figures_of, have_gone_on, quantile, row, slot_of_rank  # noqa: E402
from faulting.kinds import measure  # noqa: E402


def event(at, slot, what, pid=None, **more):
    return {"at": at, "slot": slot, "event": what, "pid": pid or 10 + slot, **more}


def first(at, slot, size, pid=None, rank=None):
    return event(at, slot, "first", pid, size=size, rank=slot if rank is None else rank)


class FiguresTest(unittest.TestCase):
    BEFORE = [first(1.0, slot, 3) for slot in (0, 1, 2)]
    # Slot 1 dies at 5.
    AFTER = [event(5.1, 0, "error"), event(5.3, 2, "error"), first(5.4, 0, 2), first(5.5, 2, 2, rank=1), event(7.0, 1, "init", 99),
             event(7.2, 0, "leave"), event(7.25, 2, "leave"), first(7.5, 2, 3, rank=1), first(7.6, 1, 3, 99, rank=2), first(7.8, 0, 3)]

    def assert_figures(self, found, ended, **wanted):
        figures, who = found
        self.assertEqual(who, ended)
        self.assertEqual({name: round(value, 3) for name, value in figures.items()},
                         {name.replace("_", " "): value for name, value in wanted.items()})

    def test_the_last_of_the_others_counts(self):
        self.assert_figures(figures_of(self.BEFORE + self.AFTER, {1}, 5.0, 3), {1}, error=0.3, next_step=0.2, taken_in=0.8,
                            standstill=0.6, back=2.8)

    def test_who_was_started_again_beside_the_dead_one_has_ended(self):
        events = self.BEFORE + [event(5.1, 0, "error"), event(5.2, 2, "error"), *(
            made for slot in (0, 1, 2) for made in (event(8.0, slot, "init", 90 + slot), first(9.0 + slot, slot, 3, 90 + slot)))]
        self.assert_figures(figures_of(events, {1}, 5.0, 3), {0, 1, 2}, error=0.2, back=6.0)

    def test_a_daemon_takes_its_ranks_along(self):
        events = self.BEFORE + [event(5.1, 1, "error"), event(5.2, 0, "error"), event(5.4, 2, "error"), first(5.6, 0, 1),
                                event(6.0, 1, "init")] + [first(6.2 + slot / 10, slot, 3) for slot in (0, 1, 2)]
        self.assert_figures(figures_of(events, {1, 2}, 5.0, 3), set(), error=0.2, next_step=0.4, back=1.4)

    def test_after_a_cut_the_way_back_counts_from_its_end(self):
        events = self.BEFORE + [event(10.1, 0, "error"), event(10.2, 1, "error"), first(10.5, 0, 2), first(10.6, 1, 2),
                                event(12.0, 2, "error")] + [first(13.0, slot, 3) for slot in (0, 1, 2)]
        self.assert_figures(figures_of(events, {2}, 5.0, 3, 11.5), set(), error=5.2, next_step=0.4, back=1.5)
        self.assertTrue(have_gone_on(events, {0, 1}, 5.0))
        self.assertFalse(have_gone_on(events[:6], {0, 1}, 5.0))

    def test_the_rank_of_a_slot_is_its_newest(self):
        self.assertEqual(slot_of_rank(self.BEFORE + self.AFTER, 1), 2)

    def test_the_table_has_medians_and_the_99th_percentile(self):
        self.assertEqual(quantile(range(1, 101), 99), 99)
        self.assertEqual(quantile([3, 1, 2], 50), 2)
        self.assertEqual(row("4 x 1: rank", {"error": [0.1, 0.3, 0.2], "ended": [0, 0, 1]}),
                         "| 4 x 1: rank, 3 faults | 0.200 s (0.300) | - | - | - | - | 1 |")
        self.assertTrue(row("Gloo: agent", "the job is over").startswith("| Gloo: agent | the job is over |"))


class JobsTest(unittest.TestCase):

    def test_faults_are_made_and_everybody_is_there_again(self):
        options = faults.parse(["--build", str(BUILD), "--faults", "1", "--state-mb", "1", "--failure-timeout", "1"])
        for layout, kind, ended in (((2, 1), "coordinator", [0]), ((1, 2), "rank", [0]), ((1, 2), "needed rank", [0]), ((3, 1), "frozen daemon", [0])):
            with self.subTest(kind=kind):
                found = measure(options, layout, kind, lambda *_: None)
                self.assertEqual(found["ended"], ended)
                self.assertEqual({len(values) for values in found.values()}, {1})

    def test_what_elasticity_costs_is_measured_in_turn(self):
        options = elastic_tax.parse(["--build", str(BUILD), "--rounds", "2", "--steps", "3", "--ranks", "2", "--sizes", "4K", "--busy-ok",
                                     "--model", "resnet50"])
        jobs = []

        def run(options, side, name, arguments, folder):
            jobs.append((side, name))
            return elastic_tax_run(options, side, name, arguments, folder) if len(jobs) <= 4 else 2.0

        elastic_tax_run = elastic_tax.run
        with mock.patch.object(elastic_tax, "run", run), contextlib.redirect_stderr(io.StringIO()):
            found = elastic_tax.measure(options)
        self.assertEqual(jobs, [("fail", "4K"), ("elastic", "4K"), ("fail", "resnet50"), ("elastic", "resnet50"), ("elastic", "4K"),
                                ("fail", "4K"), ("elastic", "resnet50"), ("fail", "resnet50")])
        self.assertTrue(all(0 < seconds for values in found.values() for seconds in values), found)
        self.assertIn("| x | 1000.000 | 2000.000 | 2.000 (2.000..2.000) |",
                      elastic_tax.table({("x", "fail"): [1.0], ("x", "elastic"): [2.0]}))

    def test_what_is_no_kind_is_refused(self):
        for wrong in (["--kinds", "earthquake"], ["--layouts", "1x1"], ["--layouts", "two"], ["--faults", "0"], ["--sides", "mpi"]):
            with self.subTest(wrong=wrong), self.assertRaises(SystemExit):
                faults.parse(["--build", str(BUILD), *wrong])


if __name__ == "__main__":
    unittest.main()
