#!/usr/bin/python3
"""Tests that data that flows slowly does not count as silence: a rank that has left goes when its data has arrived, however long
that takes."""

import time

import harness
from harness import PYTHON
from namespaces import SLOW, NamespacesTest

TIMEOUT_S = 1.0
COUNT = int(6 * TIMEOUT_S * SLOW / 4)
MODEL = f"""
import numpy as np, rueda
rueda.init()
model = rueda.broadcast(np.full({COUNT}, rueda.rank() + 1, np.float32), 0, name="model")
assert (model == 1).all()
rueda.shutdown()
"""


@harness.needs_long_tier
class SlowLinkTest(NamespacesTest):
    NODES = 2

    def test_a_node_whose_ranks_have_left_delivers_all_of_it(self):
        daemons = [self.start_daemon_of(i, "--failure-timeout", str(TIMEOUT_S)) for i in range(2)]
        self.shape("add", 0, 1)
        began = time.monotonic()
        job = self.start_job(daemons, [1, 1], [PYTHON, "-c", MODEL])
        self.assertEqual(job.exit_codes(), [0, 0], job.output())
        took = time.monotonic() - began
        print(f"{4 * COUNT} bytes took {took:.1f} s, with a timeout of {TIMEOUT_S} s")
        self.assertGreater(took, 3 * TIMEOUT_S, "the link was not slow")


if __name__ == "__main__":
    harness.main()
