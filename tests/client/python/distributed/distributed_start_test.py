"""Tests what ranks agree on through PyTorch's store before they join the job."""

import os
import sys
import threading
import types
import unittest
from datetime import timedelta
from unittest import mock

try:
    import torch  # noqa: F401
except ImportError:
    print("PyTorch is not installed: nothing is tested")
    sys.exit(0)

from rueda.distributed import _backend, _start


class Store(dict):
    """A store that outlives its ranks, as torchrun's does."""

    def set(self, key, value):
        self[key] = value.encode()

    def get(self, key):
        return self[key]


class StartTest(unittest.TestCase):
    def agreed(self, store, rank, attempt, value=""):
        with mock.patch.dict(os.environ, {"TORCHELASTIC_RESTART_COUNT": attempt}):
            return _start._agreed(store, rank, "endpoint", lambda: value)

    def test_what_an_earlier_attempt_said_is_not_taken_for_this_ones(self):
        store = Store()
        self.assertEqual(self.agreed(store, 0, "0", "a:1"), "a:1")
        self.assertEqual(self.agreed(store, 1, "0"), "a:1")
        # A rank that is faster than rank 0 once took "a:1", and waited there for ever.
        with self.assertRaises(KeyError):
            self.agreed(store, 1, "1")
        self.assertEqual(self.agreed(store, 0, "1", "a:2"), "a:2")
        self.assertEqual(self.agreed(store, 1, "1"), "a:2")


class WaitingStore:
    """A store whose get() waits for set(), as PyTorch's does."""

    def __init__(self):
        self.values = {}
        self.changed = threading.Condition()

    def set(self, key, value):
        with self.changed:
            self.values[key] = value.encode()
            self.changed.notify_all()

    def get(self, key):
        with self.changed:
            self.changed.wait_for(lambda: key in self.values, 20)
            return self.values[key]


class GroupsTest(unittest.TestCase):
    """PyTorch 1.13 gives groups that their members alone make at the same time one store. A pair once got the other pair's data.
    """

    def make_at_once(self, groups):
        """Returns what each rank takes for its group's members, or the error that it gets."""
        store, found = WaitingStore(), {}

        def make(rank, members):
            try:
                _, found[rank] = _backend._ranks_of(store, members.index(rank), len(members), timedelta(seconds=20))
            except RuntimeError as error:
                found[rank] = str(error)

        own_rank = mock.patch.object(_backend, "current",
                                     lambda: types.SimpleNamespace(rank=int(threading.current_thread().name)))
        with own_rank, mock.patch.object(_backend.dist, "is_initialized", lambda: True):
            threads = [threading.Thread(target=make, args=(rank, members), name=str(rank)) for members in groups for rank in members]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(20)
        return found

    def test_one_group_is_what_it_is(self):
        self.assertEqual(self.make_at_once([[4, 2, 7]]), {rank: [4, 2, 7] for rank in (4, 2, 7)})

    def test_two_at_the_same_time_are_right_or_an_error(self):
        for _ in range(50):
            for rank, members in self.make_at_once([[0, 3], [1, 2]]).items():
                if isinstance(members, str):
                    self.assertIn("two groups were made at the same time under one name", members)
                else:
                    self.assertEqual(members, [0, 3] if rank in (0, 3) else [1, 2])


if __name__ == "__main__":
    unittest.main()
