#!/usr/bin/python3
"""Tests rueda.torch and rueda.distributed with tensors in the memory of a GPU, on one node and on two."""

import os
import re
import subprocess
import unittest

import harness
from device_harness import PYTHON, DeviceIntegrationTest, needs_fake

HAS_TORCH = subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode == 0


def path_of(program):
    """Returns a program's path: torch_rank.py is in torch/, distributed_rank.py in distributed/."""
    return os.path.join(harness.INTEGRATION, program.partition("_")[0], program)


@unittest.skipUnless(HAS_TORCH, "PyTorch is not installed (deploy/packages.sh test installs it)")
class DeviceTorchTest(DeviceIntegrationTest):

    def run_cases(self, program, ranks, *cases):
        daemons = self.start_daemons(*["alpha", "beta"][:len(ranks)])
        job = self.start_job(daemons, ranks, [PYTHON, path_of(program), "device", *cases])
        self.assertEqual(job.exit_codes(), [0] * len(ranks),
                         job.output() + "".join(daemon.output() for daemon in daemons))
        for number in range(sum(ranks)):
            job.wait_for(number, "^ok$")
        for daemon in daemons:
            self.assertGreater(daemon.metric("rueda_gpu_submissions_total"), 0)
            self.assertEqual(daemon.metric("rueda_gpu_worker_losses_total"), 0)

    def test_horovods_api_on_one_node(self):
        self.run_cases("torch_rank.py", [2])

    def test_horovods_api_on_two_nodes(self):
        self.run_cases("torch_rank.py", [2, 1])

    def test_a_process_group_on_one_node(self):
        self.run_cases("distributed_rank.py", [2])

    def test_a_process_group_on_two_nodes(self):
        self.run_cases("distributed_rank.py", [2, 1])

    def test_a_step_on_the_gpu_is_locked_as_declared(self):
        self.run_cases("torch_rank.py", [1, 1], "case_a_step_on_the_gpu_is_declared")
        for daemon in self.daemons:
            self.assertEqual(len(re.findall("locked as declared from operation .*: 4 tensors a step", daemon.output())), 2,
                             daemon.output())
            self.assertEqual(daemon.metric("rueda_plans_abandoned_total"), 0)

    def test_an_allocator_that_is_not_watched(self):
        self.env["RUEDA_DEVICE_WATCH_FREES"] = "0"
        self.run_cases("torch_rank.py", [2], "case_segments_that_are_freed_and_come_again")

    @needs_fake
    def test_memory_that_the_worker_cannot_open(self):
        self.env["RUEDA_FAKE_GPU_REFUSES"] = "handles,descriptors"
        for program in ("torch_rank.py", "distributed_rank.py"):
            self.run_cases(program, [2])
            daemon, = self.daemons
            self.assertEqual(daemon.metric("rueda_gpu_staged_submissions_total"),
                             daemon.metric("rueda_gpu_submissions_total"))
            self.stop_daemons()
            self.daemons.clear()

    def test_a_rank_that_dies_while_streams_wait_for_it_is_named_by_the_next_call(self):
        for program, case in (("torch_rank.py", "next_reduction"), ("torch_rank.py", "saving_a_state"),
                              ("distributed_rank.py", "next_reduction")):
            with self.subTest(program=program, case=case):
                daemon, = self.start_daemons("alpha")
                job = self.start_job([daemon], [3], [PYTHON, path_of(program), "device_death", f"case_{case}"])
                for number in (0, 1):
                    job.wait_for(number, r"^told: .*rank 2 \(pid \d+\)")
                self.assertNotEqual(job.exit_codes(), [0])
                self.stop_daemons()
                self.daemons.clear()


if __name__ == "__main__":
    harness.main()
