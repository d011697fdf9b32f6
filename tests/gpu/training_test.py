#!/usr/bin/python3
"""ResNet-50 of torchvision's, trained by two processes that share a GPU, learns what one process learns: with DDP on the
backend "rueda", and with rueda.torch's DistributedOptimizer. Leaves a timeline of each in $RUEDA_TEST_TIMELINES, if that is
set. Arguments: BUILD_DIR SOURCE_DIR.

Without RUEDA_TEST_GPU=cuda it is ResNet-18 on the CPU, which tests this test."""

import json
import os
import subprocess
import sys
import unittest

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(SOURCE, "tests", "integration"))

import harness  # noqa: E402
from device_harness import IS_REAL, PYTHON, DeviceIntegrationTest  # noqa: E402

RANK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "train_rank.py")
MODEL, DEVICE, STEPS = ("resnet50", "cuda", 20) if IS_REAL else ("resnet18", "cpu", 6)
RANKS = 2
# Sums of gradients are rounded in another order, and training makes more of it with each step.
TOLERANCE = 2e-2
HAS_TORCHVISION = subprocess.run([PYTHON, "-c", "import torchvision"], capture_output=True, check=False).returncode == 0


@unittest.skipUnless(HAS_TORCHVISION, "torchvision is not installed")
class TrainingTest(DeviceIntegrationTest):

    def losses_of(self, side, nodes):
        timelines = os.environ.get("RUEDA_TEST_TIMELINES")
        extra = ["--timeline", os.path.join(timelines, f"{side}-{len(nodes)}.json")] if timelines else []
        daemons = self.start_daemons(*nodes)
        per_node = [RANKS // len(nodes)] * len(nodes)
        job = self.start_job(daemons, per_node, [PYTHON, RANK, side, MODEL, DEVICE, str(STEPS), str(RANKS)], extra)
        said = [json.loads(job.wait_for(number, "^{.*}$", 600).group(0)) for number in range(RANKS)]
        self.assertEqual(set(job.exit_codes()), {0}, job.output())
        self.stop_daemons()
        self.daemons.clear()
        if IS_REAL:
            self.assertGreater(said[0]["on_device"], 0, "no gradient was reduced where it was")
        return [one["losses"] for one in sorted(said, key=lambda one: one["rank"])]

    def test_two_processes_learn_what_one_learns(self):
        command = [PYTHON, RANK, "alone", MODEL, DEVICE, str(STEPS), str(RANKS)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        wanted = json.loads(done.stdout)
        for side in ("ddp", "hvd"):
            for nodes in (["alpha"], ["alpha", "beta"]):
                with self.subTest(side=side, nodes=len(nodes)):
                    for own, same in zip(self.losses_of(side, nodes), wanted):
                        self.assertEqual(len(own), STEPS)
                        for step, (loss, other) in enumerate(zip(own, same)):
                            self.assertLess(abs(loss - other), TOLERANCE * (1 + abs(other)), f"step {step}: {own} {same}")
                        self.assertNotEqual(own[0], own[-1])


if __name__ == "__main__":
    harness.main()
