#!/usr/bin/python3
"""Tests the whole sweep: it ends in time, repeats bit for bit, and its tables are those of docs/scale.md.

Run as: sweep_long_test.py SOURCE_DIR BIN_DIR."""

import os
import subprocess
import sys
import tempfile
import time
import unittest

MOST_SECONDS = 300

SOURCE, BIN = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))


def sweep():
    begin = time.monotonic()
    output = subprocess.run([os.path.join(BIN, "rueda-sim"), "--sweep", "--json"], check=True,
                            stdout=subprocess.PIPE).stdout
    return output, time.monotonic() - begin


class SweepTest(unittest.TestCase):

    def test_in_time_the_same_and_in_the_document(self):
        once, seconds = sweep()
        print(f"a sweep took {seconds:.0f} s", flush=True)
        self.assertLess(seconds, MOST_SECONDS)
        self.assertEqual(once, sweep()[0])
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            file.write(once)
            file.flush()
            tables = subprocess.run([sys.executable, os.path.join(SOURCE, "bench", "scale.py"), file.name], check=True,
                                    stdout=subprocess.PIPE, text=True).stdout
        with open(os.path.join(SOURCE, "docs", "scale.md"), encoding="utf-8") as file:
            document = file.read().splitlines()
        rows = [line for line in tables.splitlines() if line.startswith("|")]
        self.assertGreater(len(rows), 60)
        self.assertEqual([row for row in rows if row not in document], [])


if __name__ == "__main__":
    unittest.main()
