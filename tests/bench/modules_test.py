#!/usr/bin/python3
"""Tests bench/modules.py. Arguments: the folder of modules.py, and the build folder. Without "long" in RUEDA_MODULES_TEST no job
is run."""

import os
import subprocess
import sys
import unittest
from pathlib import Path
from unittest import mock

BENCH, BUILD = (Path(sys.argv.pop(1)) for _ in range(2))
sys.dont_write_bytecode = True
sys.path.insert(0, str(BENCH))

import modules  # noqa: E402

HAS_TORCH = subprocess.run([modules.PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode == 0
BRIEF = ["--build", str(BUILD), "--rounds", "1", "--steps", "2", "--warmup", "1", "--layers", "3", "--width", "16"]


def value_after(command, flag):
    return command[command.index(flag) + 1] if flag in command else None


class ModulesTest(unittest.TestCase):
    def test_each_combination_is_another_command(self):
        options = modules.parse(["--ranks", "3"])
        seen = set()
        for chosen in modules.MODULES:
            for way in modules.WAYS:
                command, variables = modules.command_of(options, chosen, way)
                self.assertEqual(f"{value_after(command, '--reducer')}/{value_after(command, '--algorithm')}", way)
                self.assertEqual(value_after(command, "--fusion-threshold"), None if "F" in chosen else "0")
                self.assertEqual(variables["RUEDA_TORCH_OVERLAP"], "1" if "P" in chosen else "0")
                self.assertEqual(value_after(command, "-np"), "3")
                seen.add((*command, *variables.items()))
        self.assertEqual(len(seen), 16)

    def test_ratios_are_to_no_optimisation_of_the_same_way(self):
        times = {(name, "node/ring"): [0.002 * (i + 1), 9.0, 0.0] for i, name in enumerate(modules.MODULES)}
        text = modules.table(times, ["node/ring"])
        self.assertIn("| none | 2.00 (1.00) |", text)
        self.assertIn("| P+F | 8.00 (4.00) |", text)

    def test_a_wrong_result_is_an_error(self):
        losses = iter([1.0, 1.0, 1.001, 1.0])
        with mock.patch.object(modules, "run", lambda *_: {"seconds": 1.0, "loss": next(losses)}):
            with self.assertRaisesRegex(modules.JobError, r"F, node/ring came to the loss 1.001"):
                modules.measure(modules.parse(["--rounds", "1", "--only", "node/ring"]))

    def test_wrong_arguments(self):
        for wrong in (["--rounds", "0"], ["--only", "ring/node"]):
            with self.subTest(wrong), mock.patch("sys.stderr"), self.assertRaises(SystemExit) as end:
                modules.parse(wrong)
            self.assertEqual(end.exception.code, 2)

    def test_a_job_that_fails_is_told(self):
        with mock.patch.object(modules, "command_of", lambda *_: (["/bin/sh", "-c", "echo no daemon; exit 3"], {})):
            with self.assertRaisesRegex(modules.JobError, "P, node/ring failed with 3:\nno daemon"):
                modules.run(modules.parse([]), "P", "node/ring")

    @unittest.skipUnless(HAS_TORCH and os.environ.get("RUEDA_MODULES_TEST") == "long", "needs PyTorch; for tests/long.sh")
    def test_every_combination_runs_and_comes_to_the_same_loss(self):
        done = subprocess.run([BENCH / "modules.py", *BRIEF], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("round 1: "), 16)
        self.assertEqual(done.stdout.count("|"), 6 * 6)


if __name__ == "__main__":
    unittest.main(verbosity=2)
