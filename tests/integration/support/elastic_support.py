"""What tests of elastic jobs share: jobs of ranks like elastic_rank.py, and what their output says."""

import os
import re
import signal
import subprocess

import harness
from harness import IntegrationTest, wait_until

FOLDER = os.path.join(harness.INTEGRATION, "torch")
PYTHON = os.environ.get("RUEDA_TEST_PYTHON", harness.PYTHON)  # as in distributed_test.py
HAS_TORCH = subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode == 0
HAS_NUMPY = subprocess.run([PYTHON, "-c", "import numpy"], capture_output=True, check=False).returncode == 0
PATIENCE_S = 120
LONG = 100_000  # steps, of which a job makes as many as it takes until end()


class ElasticCase(IntegrationTest):
    program = os.path.join(FOLDER, "elastic_rank.py")

    def train(self, flags, steps, *deaths):
        """Starts ranks that train so many steps; `deaths` are those of the program. A slot is the rank of the first
        generation, which is the number before each line of output."""
        command = ["env", "-C", self.folder, PYTHON, self.program, str(steps), *deaths]
        return self.ruedarun(*flags, *command)

    def lines_of(self, run, slot):
        prefix = f"[{slot}] "
        return [line[len(prefix):] for line in run.output().split("\n") if line.startswith(prefix)]

    def pids_of(self, run, slot):
        return [int(line.split()[1]) for line in self.lines_of(run, slot) if line.startswith("pid ")]

    def sizes_of(self, run, slot):
        """Returns the numbers of ranks in the steps of a slot, each once as long as it stays."""
        found = [int(size) for size in re.findall(rf"^\[{slot}\] step \d+ rank \d+ of (\d+)", run.output(), re.MULTILINE)]
        return [size for i, size in enumerate(found) if i == 0 or found[i - 1] != size]

    def end(self):
        """Has all ranks end after the same step, before they have made all."""
        with open(os.path.join(self.folder, "stop"), "w", encoding="utf-8"):
            pass

    def end_when_whole_again(self, run, slot=0):
        """Whoever is started again must find the others training, however long that takes."""
        self.wait_while_it_runs(run, lambda: self.sizes_of(run, slot)[-3:] == [3, 2, 3])
        self.end()

    def train_over_a_death(self, how):
        """Has three ranks train by one of the program's ways, the second of which is killed in step 11 and comes again. Returns the
        steps that slot 0 says it has taken."""
        run = self.train(["-np", "3", "--min-np", "2"], how, "1:11")
        self.end_when_whole_again(run)
        self.assert_trained(run, (0, 1, 2))
        self.assertEqual([len(self.pids_of(run, slot)) for slot in (0, 1, 2)], [1, 2, 1], run.output())
        for slot in (0, 2):
            self.assertIn("reset from 3 to 2", self.lines_of(run, slot))
            self.assertIn("reset from 2 to 3", self.lines_of(run, slot))
        return [int(step) for step in re.findall(r"^\[0\] step (\d+) ", run.output(), re.MULTILINE)]

    def assert_trained(self, run, slots, steps=None):
        """`steps` are given if all were made."""
        self.assertEqual(run.exit_code(PATIENCE_S), 0, run.output())
        weights = {line for slot in slots for line in self.lines_of(run, slot) if line.startswith("weights ")}
        self.assertEqual(len(weights), 1, run.output())
        for slot in slots:
            self.assertIn(f"step {steps} " if steps else "step ", "".join(self.lines_of(run, slot)[-2:]), run.output())
        # The sums that said who took part never came twice in one step of a rank.
        self.assertNotIn("AssertionError", run.output())

    def wait_while_it_runs(self, run, condition):
        self.assertTrue(wait_until(lambda: condition() or not run.is_running(), PATIENCE_S) and condition(), run.output())

    def kill_in_step(self, run, slot, step):
        self.wait_while_it_runs(run, lambda: f"[{slot}] step {step} " in run.output())
        os.kill(self.pids_of(run, slot)[-1], signal.SIGKILL)
