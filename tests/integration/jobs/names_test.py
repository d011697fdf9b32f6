#!/usr/bin/python3
"""Tests collectives that are given no name, and shapes that never come again: a job may make any number of calls. Jobs once ended
after 1,048,576 calls, and had grown with each."""

import os
import subprocess
import unittest

import harness
from harness import PYTHON, IntegrationTest

HAS_TORCH = subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode == 0
# A further name once cost 1,070 bytes of the daemon's, and 350 of the rank's. What allocators do costs some megabytes, once.
MOST_KIB, MOST_KIB_A_CALL = 3000, 0.002
# A thread that follows futures comes and goes, and a connection from rank to rank is made when it is needed.
MOST_THREADS_OR_DESCRIPTORS = 10
LONG_CALLS = int(os.environ.get("RUEDA_CALLS", "200000"))  # tests/long.sh: 2,000,000


class NamesTest(IntegrationTest):

    def check(self, how, calls, names=0, most_kib=MOST_KIB):
        daemons = self.start_daemons("alpha", "beta")
        job = self.start_job(daemons, [2, 1], [PYTHON, os.path.join(harness.RANKS, "unnamed_rank.py"), how, str(calls), str(names),
                                               *(str(one.pid) for one in daemons)])
        self.assertEqual(job.exit_codes(timeout_s=harness.amount(300, 7200)), [0, 0], job.output())
        growth = [line.split() for number in range(3) for line in job.lines_of(number) if line.startswith("process ")]
        self.assertEqual(len(growth), 5, job.output())
        for words in growth:
            print(how, *words)
            kib, threads, descriptors = (int(words[i]) for i in (3, 5, 8))
            self.assertLess(kib, most_kib + MOST_KIB_A_CALL * calls, job.output())
            self.assertLess(max(threads, descriptors), MOST_THREADS_OR_DESCRIPTORS, job.output())

    def test_calls_without_a_name_cost_no_memory(self):
        self.check("arrays", *harness.amount((30_000, 64), (LONG_CALLS, 0), (6_000, 64)))

    def test_more_of_them_may_be_in_flight_than_there_are_names(self):
        self.check("in_flight", harness.amount(12_000, LONG_CALLS // 4, 6_000))

    @unittest.skipUnless(HAS_TORCH, "PyTorch is not installed (deploy/packages.sh test installs it)")
    def test_tensors_of_pytorch_without_a_name(self):
        self.check("tensors", *harness.amount((8_000, 64), (LONG_CALLS // 4, 0), (6_000, 64)))

    @unittest.skipUnless(HAS_TORCH, "PyTorch is not installed (deploy/packages.sh test installs it)")
    def test_calls_of_torch_distributed(self):
        """Each group that came and went once had names of its own."""
        self.check("groups", *harness.amount((8_000, 64), (LONG_CALLS // 4, 0), (6_000, 64)), most_kib=harness.amount(1500, MOST_KIB))

    @harness.needs_long_tier
    def test_shapes_that_never_come_again(self):
        self.check("shapes", LONG_CALLS)


if __name__ == "__main__":
    harness.main()
