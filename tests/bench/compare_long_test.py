#!/usr/bin/python3
"""Tests bench/compare.py and bench/growth.py from end to end, with the peers that are installed. The numbers mean nothing; that
all sides are measured and checked does. Arguments: the folder of compare.py, and that of the programs."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BENCH, BIN = (Path(sys.argv.pop(1)) for _ in range(2))
PYTHON = "/usr/bin/python3"
BRIEF = ["--bin-dir", str(BIN), "--busy-ok", "--repeats", "0", "--rounds", "1", "--iters", "3", "--warmup", "1"]


class EndToEnd(unittest.TestCase):
    def run_tool(self, tool, *arguments):
        """What it printed, and what it wrote as JSON."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "found.json"
            done = subprocess.run([PYTHON, BENCH / tool, *BRIEF, "--json", path, *arguments], text=True,
                                  capture_output=True, timeout=1200, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout, json.loads(path.read_text())

    def assert_compared(self, found, sizes):
        self.assertEqual([row["bytes"] for row in found["rows"]], sizes)
        for row in found["rows"]:
            for name, side in row["sides"].items():
                if name != "floor":
                    self.assertGreater(side["time_us"]["median"], 0, name)
        self.assertTrue(found["cpu_includes_daemons"])
        # A side that was left out for want of a package says so.
        for why in found["left_out"].values():
            self.assertRegex(why, "installed|built without|shared memory|no measure below")

    def test_sizes_on_loopback(self):
        text, found = self.run_tool("compare.py", "--np", "3", "--nodes", "2", "--sizes", "0,52,256K")
        self.assert_compared(found, [0, 52, 256 << 10])
        self.assertIn("| 256 KiB |", text)
        self.assertIn("% (", text)

    def test_a_model_and_hogs(self):
        text, found = self.run_tool("compare.py", "--model", "small10", "--hogs", "1",
                                    "--coordination", "locked,negotiate")
        self.assert_compared(found, [10240])
        self.assertIn("Rueda negotiate", text)

    @unittest.skipUnless(os.geteuid() == 0, "network namespaces need root")
    def test_a_shaped_network(self):
        _, found = self.run_tool("compare.py", "--np", "3", "--nodes", "2", "--sizes", "4K,1M", "--netns",
                                 "--rate", "1gbit", "--congestion", "reno")
        self.assert_compared(found, [4096, 1 << 20])
        self.assertEqual(found["setup"]["congestion"], "reno")
        # The bytes are 2(n-1)/n of 1 MiB, at 125 MB/s; the first of them pass at once, up to the burst.
        times = {name: side["time_us"]["median"] for name, side in found["rows"][1]["sides"].items()}
        self.assertGreater(times["Rueda"], 2000)
        self.assertLess(found["limits"]["tcp_one_way_GBps"], 0.14)
        left = subprocess.run(["ip", "netns", "list"], text=True, capture_output=True, check=True).stdout
        self.assertNotIn("rueda-", left)

    def test_growth(self):
        text, found = self.run_tool("growth.py", "--max-bytes", "64", "--max-ranks", "2", "--max-nodes", "2",
                                    "--max-tensors", "10")
        self.assertEqual(set(found["curves"]), {"bytes", "memory", "ranks", "nodes", "tensors"})
        self.assertIn("| 16 B |", text)


if __name__ == "__main__":
    unittest.main()
