#!/usr/bin/python3
"""Makes faults at random (chaos.py) under a training of handwritten digits: no sum is wrong, weights are the same after each sync, and
the network reads as well in the end as that of a job that nothing has happened to."""

import os
import subprocess
import sys
import unittest

sys.path[0:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration", "support")]

import harness  # noqa: E402
from chaos import ChaosTest, draw  # noqa: E402
from harness import PYTHON  # noqa: E402

SEED = int(os.environ.get("CHAOS_SEED", "1"))
FAULTS = int(os.environ.get("CHAOS_FAULTS", harness.amount(4, 100)))
STEPS = 600
AS_GOOD = 0.02  # of the test's digits
HAS_ALL = subprocess.run([PYTHON, "-c", "import torch, sklearn"], capture_output=True, check=False).returncode == 0


@unittest.skipUnless(HAS_ALL, "PyTorch or scikit-learn is not installed (deploy/packages.sh test installs them)")
class TrainingTest(ChaosTest):
    build = harness.BUILD
    PROGRAM = "training_rank.py"
    ARGUMENTS = (str(STEPS),)

    def accuracy_of(self, events):
        """Returns how well the network reads in the end; all ranks of the end have the same one."""
        ends = [event for event in events if event["what"] == "end"]
        self.assertEqual(len({event["weights"] for event in ends}), 1, ends)
        return ends[0]["accuracy"]

    def test_it_learns_as_well_as_without_faults(self):
        undisturbed = self.accuracy_of(self.run_faults([]))
        for node in self.nodes:
            node.launcher.close()
        for name in os.listdir(self.logs):
            os.remove(os.path.join(self.logs, name))
        self.seen.clear()
        self.read_up_to.clear()
        self.last_steps.clear()
        events = self.run_faults(draw(SEED, FAULTS, self.NODES))
        accuracy = self.accuracy_of(events)
        generations = max(event["generation"] for event in events if event["what"] == "step")
        print(f"  seed {SEED}: {FAULTS} faults, {generations} generations, {sum(event['what'] == 'step' for event in events)} steps; accuracy "
              f"{accuracy:.4f}, undisturbed {undisturbed:.4f}", flush=True)
        self.assertGreater(undisturbed, 0.95)
        self.assertGreater(accuracy, undisturbed - AS_GOOD)


if __name__ == "__main__":
    harness.main()
