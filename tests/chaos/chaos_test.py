#!/usr/bin/python3
"""Kills, stops and cuts off parts of an elastic job at random (chaos.py), and looks whether anything was wrong, lost, or hung."""

import os
import sys
import unittest

sys.path[0:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration", "support")]

import harness  # noqa: E402
import shrink  # noqa: E402
from chaos import KINDS, ChaosTest, draw  # noqa: E402

SEED = int(os.environ.get("CHAOS_SEED", "1"))
FAULTS = int(os.environ.get("CHAOS_FAULTS", harness.amount(8, 40)))
ONLY = os.environ.get("CHAOS_ONLY", "")  # the numbers of the seed's faults, from 0, that are inflicted; all if it is empty


class RandomFaultsTest(ChaosTest):
    build = harness.BUILD

    def test_nothing_is_wrong_and_nothing_hangs(self):
        faults = draw(SEED, FAULTS, self.NODES)
        if ONLY:
            faults = [faults[int(number)] for number in ONLY.split(",")]
        for fault in faults:
            print(f"  {fault}", flush=True)
        events = self.run_faults(faults)
        steps = sum(event["what"] == "step" for event in events)
        generations = max(event["generation"] for event in events if event["what"] == "step")
        print(f"  seed {SEED}: {len(faults)} faults, {generations} generations, {steps} steps", flush=True)


class DrawnTest(unittest.TestCase):

    def test_a_seed_gives_the_same_faults_and_all_kinds_come(self):
        self.assertEqual(draw(5, 20, 3), draw(5, 20, 3))
        self.assertNotEqual(draw(5, 20, 3), draw(6, 20, 3))
        self.assertEqual({fault.kind for fault in draw(1, 200, 3)}, set(KINDS))

    def test_what_is_not_needed_to_fail_is_left_out(self):
        self.assertEqual(shrink.shrink(range(8), lambda some: {2, 5} <= set(some)), [2, 5])
        self.assertEqual(shrink.shrink([3], lambda some: True), [3])


if __name__ == "__main__":
    harness.main()
