#!/usr/bin/python3
"""Tests bench/faults.py. Arguments: its folder, and the build folder."""

import sys
import unittest
from pathlib import Path

BENCH, BUILD = (Path(sys.argv.pop(1)) for _ in range(2))
sys.dont_write_bytecode = True
sys.path.insert(0, str(BENCH))

import faults  # noqa: E402


def event(at, slot, what, pid=None, **more):
    return {"at": at, "slot": slot, "event": what, "pid": pid or 10 + slot, **more}


class FaultsTest(unittest.TestCase):
    BEFORE = [event(1.0, slot, "first", size=3) for slot in (0, 1, 2)]
    # Slot 1 dies at 5.
    AFTER = [event(5.1, 0, "error"), event(5.3, 2, "error"), event(5.4, 0, "first", size=2), event(5.5, 2, "first", size=2),
             event(7.0, 1, "init", 99), event(7.2, 0, "leave"), event(7.25, 2, "leave"), event(7.5, 2, "first", size=3),
             event(7.6, 1, "first", 99, size=3), event(7.8, 0, "first", size=3)]

    def assert_figures(self, found, **wanted):
        self.assertEqual({name: round(value, 3) for name, value in found.items()},
                         {name.replace("_", " "): value for name, value in wanted.items()})

    def test_the_last_of_the_others_counts(self):
        self.assert_figures(faults.figures_of(self.BEFORE + self.AFTER, 1, 5.0, 3, "rueda"),
                            error=0.3, ended=0, next_step=0.2, taken_in=0.8, standstill=0.6)

    def test_who_was_started_again_beside_the_dead_one_has_ended(self):
        events = self.BEFORE + [event(5.1, 0, "error"), event(5.2, 2, "error"), *(
            event(9.0 + slot, slot, "first", 90 + slot, size=3) for slot in (0, 1, 2))]
        self.assert_figures(faults.figures_of(events, 1, 5.0, 3, "gloo"), error=0.2, ended=2, next_step=5.8)

    def test_the_table_has_medians_and_the_longest(self):
        text = faults.table({"rueda": {"error": [0.1, 0.3, 0.2], "ended": [0, 0, 0]}})
        self.assertIn("| rueda | 0.200 s (0.300) | - | - | - | - | 0 (most 0) |", text)

    def test_a_daemon_takes_its_ranks_along(self):
        events = self.BEFORE + [event(5.1, 1, "error"), event(5.2, 0, "error"), event(5.4, 2, "error"), event(5.6, 0, "first", size=1),
                                event(6.0, 1, "init")] + [event(6.2 + slot / 10, slot, "first", size=3) for slot in (0, 1, 2)]
        self.assert_figures(faults.figures_of_daemon(events, {1, 2}, 5.0, 3), error=0.2, next_step=0.4, whole=1.4, ended=0)

    def test_slots_are_dealt_as_the_launcher_deals_them(self):
        options = faults.parse(["--build", str(BUILD), "--ranks", "5", "--nodes", "2", "--kill", "daemon"])
        self.assertEqual([faults.slots_of(options, node) for node in (0, 1)], [{0, 1, 2}, {3, 4}])

    def test_a_daemon_is_killed_and_followed_by_another(self):
        options = faults.parse(["--build", str(BUILD), "--ranks", "2", "--nodes", "2", "--kill", "coordinator", "--faults", "1",
                                "--state-mb", "1"])
        found = faults.measure(options, "rueda")
        self.assertEqual(found["ended"], [0])
        self.assertEqual({len(values) for values in found.values()}, {1})

    def test_a_rank_is_killed_and_taken_in_again(self):
        options = faults.parse(["--build", str(BUILD), "--ranks", "2", "--faults", "2", "--state-mb", "1", "--sides", "rueda"])
        found = faults.measure(options, "rueda")
        self.assertEqual(found["ended"], [0, 0])
        self.assertEqual({len(values) for values in found.values()}, {2})


if __name__ == "__main__":
    unittest.main()
