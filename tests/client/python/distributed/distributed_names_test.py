"""Tests the names of torch.distributed's collectives, which have none of their own."""

import random
import sys
import unittest

try:
    import torch  # noqa: F401
except ImportError:
    print("PyTorch is not installed: nothing is tested")
    sys.exit(0)

from rueda.distributed._names import Names


def named(calls, names=None):
    names = names or Names()
    return [(kind, names.number_of(kind)) for kind in calls]


class NamesTest(unittest.TestCase):

    def test_a_step_that_repeats_has_the_same_names_again(self):
        step = ["buffers", "a", "b", "c", "c", "c", "d"]
        rounds = [named(step, names) for names in [Names()] for _ in range(5)]
        self.assertEqual(rounds[0], [(kind, place) for place, kind in enumerate(step)])
        self.assertEqual(rounds[1], [("buffers", len(step))] + rounds[0][1:], "that it repeats is known behind its first call")
        self.assertTrue(all(one == rounds[0] for one in rounds[2:]))

    def test_what_comes_once_before_the_steps_is_soon_forgotten(self):
        names = Names()
        named(["shapes", "parameters"], names)
        rounds = [named(["a", "b", "c"], names) for _ in range(60)]
        self.assertEqual(rounds[-1], rounds[-2])
        self.assertEqual(sorted(number for _, number in rounds[-1]), [0, 1, 2])

    def test_a_step_with_a_rare_kind_first_is_one_round(self):
        """The step has layers that are alike, after one that is not."""
        step = ["embedding"] + ["weight", "bias"] * 50
        names = Names()
        rounds = [named(step, names) for _ in range(4)]
        self.assertEqual(rounds[3], rounds[2])
        self.assertEqual(len(set(rounds[3])), len(step), "nothing in a step waits for another of its own")

    def test_a_validation_between_two_steps_changes_no_later_names(self):
        names = Names()
        for _ in range(3):
            steady = named(["a", "b", "c"], names)
        for _ in range(5):
            named(["a", "b", "c", "loss"], names)
            self.assertEqual(named(["a", "b", "c"], names), steady)

    def test_the_first_call_that_differs_has_one_name_on_all_ranks(self):
        """Otherwise each rank would wait for the other, until the group's timeout."""
        for seed in range(200):
            chosen = random.Random(seed)
            step = [chosen.choice("abcd") for _ in range(chosen.randrange(1, 9))]
            calls = (step * 100)[:chosen.randrange(1, 300)]
            numbers = set()
            for last in "abcdx":
                numbers.add(named(calls + [last])[-1][1])
            self.assertEqual(len(numbers), 1, (step, len(calls)))

    def test_one_kind_alone_repeats_after_few(self):
        self.assertEqual([number for _, number in named(["a"] * 20)], [i % 8 for i in range(20)])

    def test_names_are_bounded_and_follow_from_the_calls_alone(self):
        for seed in range(50):
            chosen = random.Random(seed)
            calls = [chosen.choice("abcdefgh"[:1 + seed % 8]) for _ in range(5000)]
            names = named(calls)
            self.assertEqual(names, named(calls))
            self.assertLess(max(number for _, number in names), 1024)


if __name__ == "__main__":
    unittest.main()
