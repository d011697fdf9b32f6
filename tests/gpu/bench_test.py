#!/usr/bin/python3
"""rueda-gpu-bench with a fake GPU: what it prints, and what it says when there is none.

Run as: bench_test.py BUILD_DIR.
"""

import json
import os
import subprocess
import sys
import unittest

BUILD_DIR = os.path.abspath(sys.argv.pop(1))
PROGRAM = os.path.join(BUILD_DIR, "bin", "rueda-gpu-bench")
FAKE = os.path.join(BUILD_DIR, "lib", "librueda_gpu_test_fake.so")


def run(*arguments):
    return subprocess.run([PROGRAM, *arguments], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False, timeout=60)


class Bench(unittest.TestCase):
    SMALL = ("--plugin", FAKE, "--bytes", "1024,4096", "--ranks", "2,3", "--segments", "1,4",
             "--dtypes", "float32,int8", "--rounds", "3", "--round-seconds", "0.001")

    def test_prints_a_row_for_each_workload(self):
        done = run(*self.SMALL)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(len(done.stdout.splitlines()), 2 + 2 * 2 * 2 * 2, done.stdout)
        self.assertIn("compute capability 8.0", done.stdout)

    def test_says_it_as_json(self):
        done = run(*self.SMALL, "--json")
        results = json.loads(done.stdout)["results"]
        self.assertEqual(len(results), 16)
        for result in results:
            self.assertEqual(len(result["ratio"]), 3)
            self.assertGreater(min(result["copy_bytes_per_s"]), 0)
        self.assertEqual({(r["dtype"], r["bytes"], r["ranks"], r["segments"]) for r in results},
                         {(d, b, k, s) for d in ("float32", "int8") for b in (1024, 4096)
                          for k in (2, 3) for s in (1, 4)})

    def test_a_dtype_that_does_not_exist_is_named(self):
        done = run("--plugin", FAKE, "--dtypes", "float32,float33")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("float33", done.stderr)

    def test_says_that_there_is_no_plugin(self):
        done = run("--plugin", "/nowhere/librueda_cuda.so")
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no GPU plugin", done.stderr)


if __name__ == "__main__":
    unittest.main()
