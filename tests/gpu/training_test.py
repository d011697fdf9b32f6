#!/usr/bin/python3
"""Tests that ResNet-50 of torchvision's, trained by two processes that share a GPU, learns what one process learns: with DDP on
the backend "rueda", and with rueda.torch's DistributedOptimizer. What a step takes longer than where each trains by itself is
communication that nothing hides, and is printed. Leaves a timeline of each in $RUEDA_TEST_TIMELINES, if that is set. Arguments:
BUILD_DIR SOURCE_DIR.

Without RUEDA_TEST_GPU=cuda it is ResNet-18 on the CPU, which tests this test."""

import json
import os
import subprocess
import sys
import unittest

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(SOURCE, "tests", "integration", "support"))

import harness  # noqa: E402
from device_harness import IS_REAL, PYTHON, DeviceIntegrationTest  # noqa: E402

RANK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "train_rank.py")
MODEL, DEVICE, STEPS = ("resnet50", "cuda", 20) if IS_REAL else ("resnet18", "cpu", 6)
RANKS = 2
# Sums of gradients are rounded in another order, and training amplifies that with each step.
TOLERANCE = 2e-2
HAS_TORCHVISION = subprocess.run([PYTHON, "-c", "import torchvision"], capture_output=True, check=False).returncode == 0


@unittest.skipUnless(HAS_TORCHVISION, "torchvision is not installed")
class TrainingTest(DeviceIntegrationTest):

    def train(self, side, nodes):
        """Returns what each rank says."""
        folder = os.environ.get("RUEDA_TEST_TIMELINES", self.folder)
        timeline = os.path.join(folder, f"{side}-{len(nodes)}.json")
        extra = [] if side == "apart" else ["--timeline-filename", timeline]
        daemons = self.start_daemons(*nodes)
        per_node = [RANKS // len(nodes)] * len(nodes)
        job = self.start_job(daemons, per_node, [PYTHON, RANK, side, MODEL, DEVICE, str(STEPS), str(RANKS)], extra)
        said = [json.loads(job.wait_for(number, "^{.*}$", 600).group(0)) for number in range(RANKS)]
        self.assertEqual(set(job.exit_codes()), {0}, job.output())
        self.stop_daemons()
        self.daemons.clear()
        if side != "apart":
            with open(timeline, encoding="utf-8") as file:
                exposed = [event for event in json.load(file)["traceEvents"] if event["name"] == "EXPOSED"]
            self.assertGreaterEqual(len(exposed), RANKS, "the timeline has no communication that nothing hides")
            if IS_REAL:
                self.assertGreater(said[0]["on_device"], 0, "no gradient was reduced where it was")
        return sorted(said, key=lambda one: one["rank"])

    def test_two_processes_learn_what_one_learns(self):
        command = [PYTHON, RANK, "alone", MODEL, DEVICE, str(STEPS), str(RANKS)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        wanted = json.loads(done.stdout)
        apart_ms = max(one["step_ms"] for one in self.train("apart", ["alpha"]))
        print(f"{MODEL}, {RANKS} ranks: a step without communication takes {apart_ms:.2f} ms", file=sys.stderr)
        for side in ("ddp", "hvd"):
            for nodes in (["alpha"], ["alpha", "beta"]):
                with self.subTest(side=side, nodes=len(nodes)):
                    said = self.train(side, nodes)
                    step_ms = max(one["step_ms"] for one in said)
                    print(f"{side}, {len(nodes)} nodes: {step_ms:.2f} ms, exposed {step_ms - apart_ms:.2f} ms",
                          file=sys.stderr)
                    for own, same in zip((one["losses"] for one in said), wanted):
                        self.assertEqual(len(own), STEPS)
                        for step, (loss, other) in enumerate(zip(own, same)):
                            self.assertLess(abs(loss - other), TOLERANCE * (1 + abs(other)), f"step {step}: {own} {same}")
                        self.assertNotEqual(own[0], own[-1])


if __name__ == "__main__":
    harness.main()
