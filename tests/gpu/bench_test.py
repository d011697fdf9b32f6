#!/usr/bin/python3
"""Tests rueda-gpu-bench and rueda-gpu-job-bench with a fake GPU, and their script: what they print, and what they say when there
is no GPU.

Run as: bench_test.py BUILD_DIR."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

BUILD_DIR = os.path.abspath(sys.argv.pop(1))
PROGRAM = os.path.join(BUILD_DIR, "bin", "rueda-gpu-bench")
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench", "gpu", "run.sh")
FAKE_CUDA = os.path.join(BUILD_DIR, "lib", "librueda_fake_cuda.so")
FAKE = os.path.join(BUILD_DIR, "lib", "librueda_gpu_test_fake.so")

# The steps of the test of memory that grows; tests/long.sh makes more.
STEPS = os.environ.get("RUEDA_GROWTH_STEPS", "200")

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

    # With a GPU the script would measure everything.
    @unittest.skipIf(os.path.exists("/proc/driver/nvidia/version"), "there is a driver")
    def test_exits_with_77_where_there_is_no_gpu(self):
        done = run()
        self.assertEqual(done.returncode, 77)
        self.assertRegex(done.stderr, "skipped: .*no GPU")


class JobBench(unittest.TestCase):
    """Tests ranks that share a fake GPU, and their daemons."""

    def run_job(self, ranks, nodes, *words, has_driver=True):
        with tempfile.TemporaryDirectory(prefix="rueda-test-gpu-job-bench.") as folder:
            environment = {**os.environ, "RUEDA_FAKE_GPU": folder, "RUEDAD_GPU_PLUGIN": FAKE,
                           "RUEDA_CUDA_LIBRARY": FAKE_CUDA if has_driver else "/none.so"}
            command = [os.path.join(BUILD_DIR, "bin", "ruedarun"), "--no-prefix", "-np", str(ranks), "--virtual-nodes",
                       str(nodes), os.path.join(BUILD_DIR, "bin", "rueda-gpu-job-bench"), *words]
            return subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
                                  check=False, timeout=600)

    def rows_of(self, done, codes=(0,)):
        self.assertIn(done.returncode, codes, done.stdout + done.stderr)
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines() if line[:1] == "|"]
        self.assertEqual({len(row) for row in rows}, {len(rows[0])}, done.stdout)
        return rows[2:]

    def test_rates_beside_copies_and_beside_the_network(self):
        for ranks, nodes in ((3, 1), (2, 2)):
            done = self.run_job(ranks, nodes, "rate", "--bytes", "4096,65536", "--rounds", "2")
            rows = self.rows_of(done)
            self.assertEqual([row[0] for row in rows], ["4096", "65536"])
            self.assertEqual([row[6] for row in rows], ["yes"] * 2)
            aim = 0.85 if nodes == 1 else 0.8
            for row in rows:
                self.assertGreater(float(row[3]), 0)
                self.assertEqual(row[5], "yes" if float(row[3]) >= aim else "no")
            self.assertEqual("TCP over loopback" in done.stdout, nodes == 2)

    def test_latencies_alone_and_beside_a_load(self):
        for words in ((), ("--load",), ("--cache", "none"), ("--cache", "announced")):
            rows = self.rows_of(self.run_job(2, 1, "latency", "--bytes", "8", "--iterations", "5", *words))
            self.assertEqual([row[0] for row in rows], ["8"])
            self.assertTrue(all(float(cell) > 0 for cell in rows[0][:5]), rows)
            if "--load" in words:
                self.assertGreater(float(rows[0][5]), 0)
            else:
                judged = [float(rows[0][1]) < 40, float(rows[0][3]) < 80]
                self.assertEqual(rows[0][5], ", ".join("yes" if is_so else "no" for is_so in judged))

    def test_growth(self):
        # A sanitizer keeps memory that was freed.
        codes = (0, 1) if os.environ.get("RUEDA_TEST_SANITIZED") == "1" else (0,)
        row, = self.rows_of(self.run_job(2, 2, "growth", "--steps", STEPS), codes)
        self.assertEqual(row[0], STEPS)
        self.assertRegex(row[2], r"\(6\)$", "two daemons, and of each a fork server and a worker")

    def test_says_that_there_is_no_driver(self):
        done = self.run_job(2, 1, "growth", has_driver=False)
        self.assertEqual(done.returncode, 77)
        self.assertIn("skipped: there is no CUDA driver", done.stderr)


class Script(unittest.TestCase):
    """Tests bench/gpu/run.sh, with programs that stand for rueda-gpu-bench, ruedarun and nvidia-smi."""

    def run_script(self, program, device="NVIDIA Fake, 580.1", launcher='echo "job $*"'):
        with tempfile.TemporaryDirectory(prefix="rueda-test-gpu-bench.") as folder:
            for name, text in (("rueda-gpu-bench", program), ("ruedarun", launcher), ("nvidia-smi", f"echo '{device}'")):
                path = os.path.join(folder, name)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(f"#!/bin/sh\n{text}\n")
                os.chmod(path, 0o755)
            out = os.path.join(folder, "out")
            environment = {"PATH": f"{folder}:/usr/bin:/bin", "RUEDA_GPU_BIN": folder}
            done = subprocess.run([SCRIPT, out], env=environment, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, check=False, timeout=60)
            tables = []
            for name in ("bench.md", "jobs.md"):
                path = os.path.join(out, name)
                tables.append("")
                if os.path.exists(path):
                    with open(path, encoding="utf-8") as file:
                        tables[-1] = file.read()
        return done, *tables

    def test_writes_tables_that_say_on_what(self):
        done, table, jobs = self.run_script('echo "got $*"')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("NVIDIA Fake, 580.1", jobs)
        self.assertRegex(jobs, "job --no-prefix -np 2 --virtual-nodes 2 .*/rueda-gpu-job-bench rate")
        self.assertRegex(jobs, "job .*/rueda-gpu-job-bench latency --load")
        self.assertIn("NVIDIA Fake, 580.1", table)
        self.assertIn("got --markdown --bytes 67108864,1073741824 --ranks 2,4,8", table)

    def test_passes_on_that_there_is_no_gpu_and_what_fails(self):
        for code in (77, 1):
            done, _, _ = self.run_script(f"echo why >&2; exit {code}")
            self.assertEqual(done.returncode, code)
            self.assertIn("why", done.stderr)

    def test_a_job_that_fails_is_named_when_all_have_run(self):
        done, _, jobs = self.run_script("true", launcher="case $* in *growth*) exit 1;; esac; echo ran")
        self.assertEqual(done.returncode, 1)
        self.assertIn("failed: 2 1 growth --steps 10000", done.stderr)
        self.assertIn("ran", jobs)


if __name__ == "__main__":
    unittest.main()
