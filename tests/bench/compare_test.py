#!/usr/bin/python3
"""bench/compare.py: what does not need a daemon. Argument: the folder of compare.py."""

import argparse
import contextlib
import io
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
if __name__ == "__main__":
    sys.path.insert(0, sys.argv.pop(1))

import compare
from comparing import processes, sides


def run_of(times, cpu=1.0, disturbed=False):
    return {
        "results": [{"bytes": 4, "time_us": t, "busbw_GBps": 1.0, "cpu_s_per_GB": cpu} for t in times],
        "noise_cores": 0.5 if disturbed else 0.01,
        "disturbed": disturbed,
        "attempts": 1,
    }


class SizesTest(unittest.TestCase):
    def test_suffixes(self):
        self.assertEqual(compare.parse_sizes("0,4,4K,64M"), [0, 4, 4096, 64 << 20])

    def test_refuses(self):
        for text in ("", "K", "-4", "3", "4KB", "1.5M"):
            with self.assertRaises(argparse.ArgumentTypeError, msg=text):
                compare.parse_size(text)


class ArgumentsTest(unittest.TestCase):
    def test_more_nodes_than_ranks(self):
        with self.assertRaises(SystemExit) as caught, contextlib.redirect_stderr(io.StringIO()):
            compare.parse_arguments(["--np", "2", "--nodes", "3"])
        self.assertEqual(caught.exception.code, 2)


    def test_a_model_says_the_bytes(self):
        options = compare.parse_arguments(["--model", "small1000", "--coordination", "locked,negotiate"])
        self.assertEqual(options.sizes, [1_024_000])
        self.assertEqual(options.coordination, ["locked", "negotiate"])


class SummaryTest(unittest.TestCase):
    def test_ratios_are_taken_round_by_round(self):
        rounds = [
            {"Rueda": run_of([10]), "Gloo": run_of([30])},
            {"Rueda": run_of([20]), "Gloo": run_of([40])},
            {"Rueda": run_of([10]), "Gloo": run_of([50])},
        ]
        (row,) = compare.summarize(rounds, [4], "Rueda", ["Gloo"])
        self.assertEqual(row["sides"]["Rueda"]["time_us"], 10)
        self.assertEqual(row["sides"]["Gloo"]["time_us"], 40)
        self.assertEqual(row["ratios"]["Gloo"], {"median": 3, "min": 2, "max": 5})

    def test_no_bytes_have_no_cpu_per_byte(self):
        rounds = [{"Rueda": run_of([10], cpu=None), "Gloo": run_of([30], cpu=None)}]
        (row,) = compare.summarize(rounds, [0], "Rueda", ["Gloo"])
        self.assertIsNone(row["sides"]["Rueda"]["cpu_s_per_GB"])

    def report(self, rounds, ours="Rueda", peers=("Gloo",)):
        return {
            "setup": {"np": 4, "nodes": 2, "iters": 20, "rounds": len(rounds), "congestion": "bbr",
                      "model": None, "tensors": None},
            "limits": {"memcpy_1_thread_GBps": 11.0, "memcpy_2_threads_GBps": 17.0,
                       "tcp_one_way_GBps": 4.0, "tcp_congestion": "bbr"},
            "rows": compare.summarize(rounds, [4], ours, peers),
            "cpu_includes_daemons": True,
            "rounds": rounds,
        }

    def test_table(self):
        text = compare.report_markdown(self.report([{"Rueda": run_of([10]), "Gloo": run_of([30])}]))
        self.assertIn("| 4 | 10.0 | 1.00 | 30.0 | 1.00 | 3.00× Gloo (3.00..3.00) |", text)
        self.assertIn("bbr", text)
        self.assertNotIn("distrusted", text)

    def test_modes_of_a_model(self):
        rounds = [{"Rueda locked": run_of([10]), "Rueda negotiate": run_of([25]), "Gloo": run_of([40])}]
        rounds[0]["Rueda locked"]["results"][0]["order_messages_per_step"] = 0.0
        rounds[0]["Rueda negotiate"]["results"][0]["order_messages_per_step"] = 12.5
        report = self.report(rounds, "Rueda locked", ("Rueda negotiate", "Gloo"))
        report["setup"].update(model="small1000", tensors=1000)
        text = compare.report_markdown(report)
        self.assertIn("A step of small1000 (1000 tensors; one flat buffer for Gloo)", text)
        self.assertIn("2.50× Rueda negotiate (2.50..2.50), 4.00× Gloo (4.00..4.00)", text)
        self.assertIn("to agree on the order, a step: Rueda locked 0.0, Rueda negotiate 12.5.", text)

    def test_a_disturbed_run_is_said_to_be_so(self):
        rounds = [{"Rueda": run_of([10], disturbed=True), "Gloo": run_of([30])}]
        self.assertIn("1 of them stayed above", compare.report_markdown(self.report(rounds)))


class ResultsTest(unittest.TestCase):
    def test_wrong_results_are_errors(self):
        with self.assertRaisesRegex(compare.CompareError, "3 wrong elements at 4 bytes"):
            sides.parse_results('{"bytes": 4, "wrong": 3}', [4], "Rueda")

    def test_a_missing_size_is_an_error(self):
        with self.assertRaises(compare.CompareError):
            sides.parse_results('{"bytes": 4, "wrong": 0}', [4, 8], "Rueda")


class FakeSide(sides.Side):
    name = "Fake"

    def __init__(self):
        self.runs = 0

    def measure(self, work):
        self.runs += 1
        return [{"time_us": 1.0}]


class RoundsTest(unittest.TestCase):
    def measure(self, noises):
        class Meter:
            def cores(self):
                return noises.pop(0)

        side = FakeSide()
        original, compare.NoiseMeter = compare.NoiseMeter, Meter
        try:
            work = argparse.Namespace(repeats=2)
            return side, compare.measure_quietly(side, work, lambda text: None)
        finally:
            compare.NoiseMeter = original

    def test_a_disturbed_run_is_repeated(self):
        side, run = self.measure([0.5, 0.02])
        self.assertEqual(side.runs, 2)
        self.assertFalse(run["disturbed"])

    def test_but_not_for_ever(self):
        side, run = self.measure([0.5, 0.5, 0.5])
        self.assertEqual(side.runs, 3)
        self.assertTrue(run["disturbed"])


class CongestionTest(unittest.TestCase):
    def test_is_put_back_even_after_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            sysctl = Path(folder) / "tcp_congestion_control"
            sysctl.write_text("bbr\n")
            with self.assertRaises(KeyError):
                with compare.congestion_control("reno", sysctl) as name:
                    self.assertEqual(name, "reno")
                    self.assertEqual(sysctl.read_text(), "reno")
                    raise KeyError
            self.assertEqual(sysctl.read_text(), "bbr")

    def test_system_changes_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            sysctl = Path(folder) / "tcp_congestion_control"
            sysctl.write_text("bbr\n")
            with compare.congestion_control("system", sysctl) as name:
                self.assertEqual(name, "bbr")
            self.assertEqual(sysctl.read_text(), "bbr\n")


class RunGroupTest(unittest.TestCase):
    def test_outputs_by_command(self):
        self.assertEqual(processes.run_group([["echo", "a"], ["echo", "b"]], 30), ["a\n", "b\n"])

    def test_environment(self):
        texts = processes.run_group([["sh", "-c", "echo $RANK"]], 30, [{"RANK": "7"}])
        self.assertEqual(texts, ["7\n"])

    def test_one_that_fails_ends_the_others(self):
        start = time.monotonic()
        with self.assertRaisesRegex(compare.CompareError, "status 5"):
            processes.run_group([["sleep", "600"], ["sh", "-c", "echo why >&2; exit 5"]], 300)
        self.assertLess(time.monotonic() - start, 250)

    def test_time_is_bounded(self):
        with self.assertRaisesRegex(compare.CompareError, "was ended"):
            processes.run_group([["sleep", "600"]], 0.1)


if __name__ == "__main__":
    unittest.main()
