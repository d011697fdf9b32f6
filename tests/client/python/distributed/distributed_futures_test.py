"""Tests who is told when an operation has ended, and in which order operations of one name begin."""

import random
import sys
import threading
import time
import unittest

try:
    import torch  # noqa: F401
except ImportError:
    print("PyTorch is not installed: nothing is tested")
    sys.exit(0)

from rueda.distributed._futures import Follower, LastOfNames, Turns, Watcher


class Ending:
    """Stands for an operation that another thread ends."""

    what, result, error = "it", [], None

    def __init__(self):
        self.begun = 0
        self.end = threading.Event()

    @property
    def has_ended(self):
        return self.end.is_set()

    def begin(self):
        self.begun += 1

    def poll(self):
        return self.end.is_set()

    def wait(self, timeout):
        return self.end.wait(timeout)


class EndsAfterALook(Ending):
    """An operation that ends the moment after it was looked at for the first time, as if another thread had waited for it."""

    def poll(self):
        had_ended = self.end.is_set()
        self.end.set()
        return had_ended


def wait_until(condition):
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.002)
    return condition()


class FuturesTest(unittest.TestCase):
    def test_what_ends_between_two_looks_is_not_forgotten(self):
        told = []
        follower = Follower("test")
        operations = [EndsAfterALook() for _ in range(50)]
        for operation in operations:
            follower.follow(operation, told.append)
        self.assertTrue(wait_until(lambda: len(told) == 50), len(told))
        self.assertEqual(set(map(id, told)), set(map(id, operations)))

    def test_everyone_is_told_once_whoever_ends_them(self):
        chosen = random.Random(1)
        follower, told = Follower("test"), []
        operations = [Ending() for _ in range(300)]
        ends = operations[:]
        chosen.shuffle(ends)
        ender = threading.Thread(target=lambda: [(operation.end.set(), time.sleep(0.0002)) for operation in ends])
        ender.start()
        for operation in operations:
            follower.follow(operation, told.append)
        ender.join()
        self.assertTrue(wait_until(lambda: len(told) == 300), len(told))
        self.assertEqual(len(set(map(id, told))), 300)

    def test_operations_of_one_name_begin_one_after_the_other(self):
        turns = Turns(Follower("test"), Watcher("test"), LastOfNames())
        first, second, third, other = Ending(), Ending(), Ending(), Ending()
        for name, operation in (("a", first), ("a", second), ("a", third), ("b", other)):
            turns.begin(name, operation)
        self.assertEqual([first.begun, second.begun, third.begun, other.begun], [1, 0, 0, 1])
        first.end.set()
        self.assertTrue(wait_until(lambda: second.begun == 1))
        self.assertEqual(third.begun, 0)
        second.end.set()
        self.assertTrue(wait_until(lambda: third.begun == 1))


if __name__ == "__main__":
    unittest.main()
