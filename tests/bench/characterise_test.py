#!/usr/bin/python3
"""Tests bench/characterise.py. Arguments: its folder, and the build folder, whose programs measure one small cell as root."""

import argparse
import contextlib
import csv
import io
import json
import os
import sys
import tempfile
import unittest
from pathlib import Path

BENCH, BUILD = (Path(sys.argv.pop(1)) for _ in range(2))
sys.dont_write_bytecode = True
sys.path.insert(0, str(BENCH))

import characterise  # noqa: E402
from characterising import cells, papers, prediction, report, running  # noqa: E402
from comparing.processes import CompareError  # noqa: E402


def result(step_ms, **more):
    return {"bytes": 100, "compute_ms": 0.0, "noise_cores": 0.0, "step_ms": step_ms, "cpu_s": 0.1, "sent_bytes": 1e6, **more}


def trained(cell, step_ms, compute_ms):
    return result(step_ms, compute_ms=compute_ms, images_per_s=cell.batch * cell.ranks / step_ms * 1e3, efficiency=compute_ms / step_ms)


def printed(does, options):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        does(options)
    return out.getvalue()


class CharacteriseTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.path = self.folder / "results.jsonl"

    def test_no_two_cells_have_one_key(self):
        every = cells.cells_of(cells.STUDIES)
        self.assertEqual(len({cell.key() for cell in every}), len(every))
        self.assertEqual({cell.study for cell in every}, set(cells.STUDIES))

    def test_a_finished_cell_is_not_run_again(self):
        first, second = cells.modes()[:2]
        store = running.Store(self.path)
        store.add(first, 0, result(5.0))
        again = running.Store(self.path)
        self.assertTrue(again.has(first, 0))
        self.assertFalse(again.has(first, 1))
        self.assertFalse(again.has(second, 0))
        for number, step_ms in ((1, 9.0), (2, 7.0)):
            again.add(first, number, result(step_ms))
        self.assertEqual(running.Store(self.path).median(first)["step_ms"], 7.0)
        self.assertIsNone(running.Store(self.path).median(second))

    def test_a_line_that_was_cut_off_is_named(self):
        self.path.write_text('{"key": "a", "round": 0}\n{"key": "b', encoding="utf-8")
        with self.assertRaisesRegex(ValueError, "results.jsonl, line 2, is no result"):
            running.Store(self.path)

    def test_the_papers_numbers_are_those_of_the_texts(self):
        found = {(each.text, each.figure, each.low, each.high) for each in papers.PUBLISHED}
        for number in (("Uber", "6", 88, 88), ("Uber", "7", 1.30, 1.30), ("Baidu", "none", 650, 700), ("Awan", "7", 98, 98),
                       ("Awan", "8", 90, 90), ("Awan", "9", 16, 16), ("Awan", "9", 71, 71), ("Awan", "9", 92, 92), ("Awan", "9", 1.8, 1.8),
                       ("Awan", "9", 3.2, 3.2), ("Cambridge", "4", 72, 72), ("Cambridge", "4", 60, 60), ("Cambridge", "4", 23, 23),
                       ("Cambridge", "6", 4, 64)):
            self.assertIn(number, found)
        for each in papers.PUBLISHED:
            self.assertTrue(each.section and each.low <= each.high, each)

    def test_the_report_has_the_papers_numbers_beside_ours(self):
        store = running.Store(self.path)
        for cell in cells.uber() + cells.networks():
            store.add(cell, 0, trained(cell, 125.0 if cell.preset == "horovod" else 200.0, 100.0))
        table = self.folder / "cells.csv"
        said = printed(report.report, argparse.Namespace(store=self.path, csv=table, svg=None))
        self.assertIn("| Uber, figure 6 (Horovod benchmarks) | Horovod over 25 Gbit/s TCP, Inception V3 and ResNet-101, 128 GPUs | "
                      "efficiency, % | 88.0 | 80.0 | `horovod`, ResNet-101, 8 nodes, 10 Gbit/s | -9% |", said)
        self.assertIn("| ratio | 1.80 | 1.60 | 4 nodes | -11% |", said)
        self.assertIn("modes: 10 cells are not measured", said)
        rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
        self.assertEqual(len(rows), len(cells.uber() + cells.networks()))
        self.assertEqual(rows[0]["efficiency"], "0.5")

    def test_the_fit_finds_the_costs_that_made_the_numbers(self):
        measured = []
        for cell in cells.calibration():
            cpu_ns = (0.5 * cell.ranks + 0.8 * 2 * (cell.nodes - 1)) * cell.size_bytes
            step_ms = (30 + 20 * 2 * (cell.nodes - 1)) / 1e3 if cell.size_bytes < prediction.LARGE else cpu_ns / 1e6 / 1.6
            measured.append((cell, {**result(step_ms), "bytes": cell.size_bytes, "cpu_s": cpu_ns / 1e9}))
        costs = prediction.fit(measured)
        for name, value in (("hop_us", 20), ("operation_us", 30), ("rank_ns_per_byte", 0.5), ("wire_ns_per_byte", 0.8), ("busy_cores", 1.6)):
            self.assertAlmostEqual(costs[name], value, places=6)
        with self.assertRaisesRegex(CompareError, "calibration"):
            prediction.fit(measured[:2])

    def test_nothing_that_is_validated_was_fitted_on(self):
        self.assertFalse([cell for cell in cells.calibration() if prediction.is_predicted(cell)])
        self.assertGreater(len([cell for cell in cells.cells_of(cells.STUDIES) if prediction.is_predicted(cell)]), 20)

    def test_the_simulator_predicts_the_papers_clusters(self):
        costs = self.folder / "costs.json"
        costs.write_text(json.dumps({"hop_us": 20, "operation_us": 30, "rank_ns_per_byte": 0.2, "wire_ns_per_byte": 0.3, "busy_cores": 2}),
                         encoding="utf-8")
        said = printed(prediction.predict, argparse.Namespace(costs=costs, bin_dir=BUILD / "bin"))
        self.assertEqual(said.count("| Awan, figure 9 |"), 3)
        self.assertEqual(said.count("| rdma, 400 Gbit/s |"), 4)
        costs.write_text('{"hop_us": 20}', encoding="utf-8")
        with self.assertRaisesRegex(CompareError, "costs.json: it lacks 'operation_us'"):
            printed(prediction.predict, argparse.Namespace(costs=costs, bin_dir=BUILD / "bin"))

    @unittest.skipIf(os.geteuid() != 0, "network namespaces need root")
    def test_a_small_cell_runs_and_takes_as_long_as_its_network_computes(self):
        networks = running.read_networks(BUILD / "bin", ["mobilenet1"])
        cell = cells.Cell("smoke", "rueda", (), "mobilenet1", 4, nodes=2, rate="1gbit")
        options = argparse.Namespace(bin_dir=BUILD / "bin", steps=3, warmup=1, timeout_s=60)
        found = running.measure(cell, networks, options)
        self.assertGreater(found["step_ms"], found["compute_ms"])
        # 17 MB go over each link at 125 MB/s.
        self.assertGreater(found["step_ms"], 0.7 * 16.9 / 125 * 1e3)
        self.assertGreater(found["sent_bytes"], 2 * 16.9e6)
        self.assertLess(found["efficiency"], 1)

    def test_networks_that_torchvision_has_too_have_its_tensors(self):
        try:
            import torchvision
        except ImportError:
            self.skipTest("torchvision is not installed: deploy/packages.sh test")
        bare = {"googlenet": {"aux_logits": False, "init_weights": False}, "inception_v3": {"aux_logits": False, "init_weights": False}}
        for ours, theirs in (("resnet18", "resnet18"), ("resnet50", "resnet50"), ("resnet101", "resnet101"), ("alexnet", "alexnet"),
                             ("googlenet-no-aux", "googlenet"), ("inception3", "inception_v3")):
            network, = running.ask_bench(BUILD / "bin", "models", "--model", ours)
            model = getattr(torchvision.models, theirs)(**bare.get(theirs, {}))
            shapes = {name: list(parameter.shape) for name, parameter in model.named_parameters()}
            self.assertEqual(dict(zip(network["names"], network["shapes"])), shapes, ours)

    def test_wrong_lines(self):
        for line in (["run"], ["run", "--store", "x", "--study", "none"], ["run", "--store", "x", "--rounds", "0"], ["costs", "--store", "x"]):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                characterise.parse(line)


if __name__ == "__main__":
    unittest.main()
