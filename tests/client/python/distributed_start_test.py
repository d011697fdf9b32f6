"""What ranks agree on through PyTorch's store before they join the job."""

import os
import sys
import unittest
from unittest import mock

try:
    import torch  # noqa: F401
except ImportError:
    print("PyTorch is not installed: nothing is tested")
    sys.exit(0)

from rueda.distributed import _start


class Store(dict):
    """One that outlives its ranks, as torchrun's does."""

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


if __name__ == "__main__":
    unittest.main()
