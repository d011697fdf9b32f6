#!/usr/bin/python3
"""rueda-gpu-bench with a fake GPU, and its script: what they print, and what they say when there is none.

Run as: bench_test.py BUILD_DIR.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

BUILD_DIR = os.path.abspath(sys.argv.pop(1))
PROGRAM = os.path.join(BUILD_DIR, "bin", "rueda-gpu-bench")
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench", "gpu", "run.sh")
FAKE = os.path.join(BUILD_DIR, "lib", "librueda_gpu_test_fake.so")

os.environ["RUEDA_FAKE_GPU_BYTES"] = str(64 << 20)


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

    def test_prints_a_table_in_markdown(self):
        done = run(*self.SMALL, "--markdown")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        rows = [line for line in done.stdout.splitlines() if line.startswith("|")]
        self.assertEqual(len(rows), 2 + 2 * 2 * 2 * 2, done.stdout)
        self.assertEqual({row.count("|") for row in rows}, {10}, done.stdout)

    def test_says_what_does_not_fit_and_goes_on(self):
        arguments = ("--plugin", FAKE, "--bytes", "41943040,1024", "--ranks", "2", "--segments", "1",
                     "--dtypes", "float32", "--rounds", "2", "--round-seconds", "0.001")
        done = run(*arguments, "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lacking, measured = json.loads(done.stdout)["results"]
        self.assertIn("lack", lacking)
        self.assertEqual(len(measured["ratio"]), 2)
        done = run(*arguments, "--markdown")
        self.assertEqual(len(done.stdout.splitlines()), 6, done.stdout)

    def test_a_dtype_that_does_not_exist_is_named(self):
        done = run("--plugin", FAKE, "--dtypes", "float32,float33")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("float33", done.stderr)

    def test_says_that_there_is_no_plugin(self):
        done = run("--plugin", "/nowhere/librueda_cuda.so")
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no GPU plugin", done.stderr)

    # With a GPU all of it would be measured.
    @unittest.skipIf(os.path.exists("/proc/driver/nvidia/version"), "there is a driver")
    def test_exits_with_77_where_there_is_no_gpu(self):
        done = run()
        self.assertEqual(done.returncode, 77)
        self.assertRegex(done.stderr, "skipped: .*no GPU")


class Script(unittest.TestCase):
    """bench/gpu/run.sh, with a program that stands for rueda-gpu-bench and one that stands for nvidia-smi."""

    def run_script(self, program, device="NVIDIA Fake, 580.1"):
        with tempfile.TemporaryDirectory(prefix="rueda-gpu-bench.") as folder:
            for name, text in (("rueda-gpu-bench", program), ("nvidia-smi", f"echo '{device}'")):
                path = os.path.join(folder, name)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(f"#!/bin/sh\n{text}\n")
                os.chmod(path, 0o755)
            out = os.path.join(folder, "out")
            environment = {"PATH": f"{folder}:/usr/bin:/bin", "RUEDA_GPU_BIN": folder}
            done = subprocess.run([SCRIPT, out], env=environment, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, check=False, timeout=60)
            table = ""
            if os.path.exists(os.path.join(out, "bench.md")):
                with open(os.path.join(out, "bench.md"), encoding="utf-8") as file:
                    table = file.read()
        return done, table

    def test_writes_tables_that_say_on_what(self):
        done, table = self.run_script('echo "got $*"')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("NVIDIA Fake, 580.1", table)
        self.assertIn("got --markdown --bytes 67108864,1073741824 --ranks 2,4,8", table)

    def test_passes_on_that_there_is_no_gpu_and_what_fails(self):
        for code in (77, 1):
            done, _ = self.run_script(f"echo why >&2; exit {code}")
            self.assertEqual(done.returncode, code)
            self.assertIn("why", done.stderr)


if __name__ == "__main__":
    unittest.main()
