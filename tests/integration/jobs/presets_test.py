#!/usr/bin/python3
"""Tests that every preset of ruedarun gives right results, which are compared element by element, and what a daemon says that has
another transport than a job asks for."""

import re

import harness
from harness import IntegrationTest, rank

OPERATIONS = harness.amount(40, 200, 20)


class PresetsTest(IntegrationTest):

    def run_preset(self, name, *flags):
        command = [harness.program("integration_parts_rank"), "3", str(OPERATIONS)]
        return self.ruedarun("-np", "4", "--virtual-nodes", "3", "--preset", name, *flags, "--", *command)

    def names(self):
        job = self.ruedarun("--preset", "none", "--", "true")
        self.assertEqual(job.exit_code(), 2)
        return re.search(r"there are (.*?) \(", job.output()).group(1).split(", ")

    def test_every_preset_gives_right_results(self):
        names = self.names()
        self.assertEqual(len(names), 10, names)
        for name in names:
            with self.subTest(name):
                job = self.run_preset(name)
                if name == "grpc-verbs":  # RDMA is tried where there is some: tests/rdma
                    self.assertNotEqual(job.exit_code(), 0)
                    self.assertIn("--transport rdma", job.output())
                    continue
                self.assertEqual(job.exit_code(), 0, job.output())
                self.assertEqual(sum(" ok " in line or line.startswith("ok ") for line in job.output().splitlines()), 4, job.output())

    def test_servers_in_any_number(self):
        for servers in (1, 2, 3):
            job = self.run_preset("grpc-ps", "--servers", str(servers))
            self.assertEqual(job.exit_code(), 0, job.output())
        job = self.run_preset("grpc-ps", "--servers", "4")
        self.assertNotEqual(job.exit_code(), 0)
        self.assertIn("--servers 4 is more than its 3 nodes", job.output())
        job = self.run_preset("horovod", "--servers", "2")
        self.assertNotEqual(job.exit_code(), 0)
        self.assertIn("--servers is for --algorithm central, not ring", job.output())

    def test_a_daemon_with_another_transport_says_so(self):
        daemon = self.start_daemon("alpha", "--transport", "tcp")
        job = self.ruedarun("-np", "1", "--socket", daemon.socket, "--preset", "grpc-ps", "--", *rank("init"))
        self.assertNotEqual(job.exit_code(), 0)
        self.assertIn("asks for transport grpc, and the daemon of node alpha has tcp", job.output())


if __name__ == "__main__":
    harness.main()
