#!/usr/bin/python3
"""Tests bench/autotune.py, without running a job. Argument: its folder."""

import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

BENCH = Path(sys.argv.pop(1))
sys.dont_write_bytecode = True
sys.path.insert(0, str(BENCH))

import autotune  # noqa: E402

HEAD = "step,phase,fusion_bytes,chunk_bytes,streams,cutover,step_ms,verdict\n"
MEASURED = '20,halving,67108864,default,all,measured,1.5,""\n'
SETTLED = '300,settled,67108864,524288,all,ring,1.250,"no gain, defaults kept"\n'


class AutotuneTest(unittest.TestCase):

    def settled(self, text, search):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "log.csv"
            if text is not None:
                path.write_text(text, encoding="utf-8")
            return autotune.settled_line(path, search)

    def test_the_last_line_is_what_it_settled_on(self):
        line = self.settled(HEAD + MEASURED * 5 + SETTLED, 320)
        self.assertEqual(autotune.described(line), "no gain, defaults kept (67108864, 524288, all, ring)")

    def test_what_is_measured_must_come_after_the_search(self):
        for text, search, why in ((None, 900, "no log"), (HEAD, 900, "had not settled"),
                                  (HEAD + MEASURED, 900, "had not settled"),
                                  (HEAD + MEASURED * 5 + SETTLED, 319, "up to 320 steps")):
            with self.assertRaisesRegex(autotune.CompareError, why):
                self.settled(text, search)

    def test_after_each_search_short_runs_alternate(self):
        options = autotune.parse(["--search", "500", "--networks", "loopback", "--rounds", "2", "--pairs", "3",
                                  "--repeats", "0"])
        seen = []

        def measured(self, work, network):
            seen.append((self.name, work.warmup))
            if self.name == "search":
                self.log.write_text(HEAD + MEASURED + SETTLED, encoding="utf-8")
            elif self.name == "autotuned":
                assert self.flags[0] == "--plan", self.flags
            return [{"time_us": 1.0, "pace_us": 2.0 if self.name == "defaults" else 1.0}]

        with mock.patch.object(autotune.Rueda, "measure", measured):
            found = autotune.measure(options, "loopback", {"bytes": 4, "shapes": []}, lambda text: None)
        self.assertEqual(seen[:3], [("search", 500), ("defaults", 20), ("autotuned", 20)])
        self.assertEqual([name for name, _ in seen].count("search"), 2)
        self.assertEqual(found["ratios"], [0.5] * 6)
        self.assertEqual(len(found["settled"]), 2)

    def test_the_table_has_a_row_a_network(self):
        options = autotune.parse([])
        found = [{"network": name, "times_ms": {"defaults": [10.0, 12.0, 11.0], "autotuned": [9.0, 9.5, 10.0]},
                  "ratios": [0.9, 0.8, 0.91], "settled": [self.settled(HEAD + MEASURED + SETTLED, 900)] * 3}
                 for name in options.networks]
        text = autotune.markdown(options, found)
        self.assertIn("| 1gbit | 11.0 (10.0..12.0) | 9.50 (9.00..10.0) | 0.90 (0.80..0.91) | no gain, defaults kept",
                      text)
        self.assertIn("| loopback |", text)


if __name__ == "__main__":
    unittest.main()
