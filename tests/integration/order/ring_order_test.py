#!/usr/bin/python3
"""Tests the order of the ring: nodes of a rack stand next to each other, and all results stay right."""

import json
import subprocess

import harness
from harness import IntegrationTest, wait_until


class RingOrderTest(IntegrationTest):

    def ring(self, daemon):
        printed = subprocess.run([harness.program("ruedactl"), "--json", "--socket", daemon.socket, "jobs"],
                                 capture_output=True, check=True, timeout=60)
        jobs = json.loads(printed.stdout)["jobs"]
        return jobs[0]["ring"] if jobs else None

    def test_nodes_of_a_rack_stand_together(self):
        daemons = [self.start_daemon(f"node{i}", "--label", f"rack={rack}") for i, rack in enumerate("abab")]
        job = self.start_job(daemons, [1] * 4,
                             [harness.program("rueda-bench"), "allreduce", "--op", "all", "--dtype", "all",
                              "--sizes", "1e,1021e,65549e", "--iters", "20", "--warmup", "0"])
        order = ["node0", "node2", "node1", "node3"]
        for daemon in daemons:
            wait_until(lambda daemon=daemon: self.ring(daemon) == order)
            daemon.wait_for("the ring is " + ", ".join(order))
        self.assertEqual(set(job.exit_codes()), {0}, job.output())

    def test_collectives_with_parts_and_roots_in_another_order(self):
        daemons = [self.start_daemon(f"node{i}", "--label", f"rack={rack},zone=z") for i, rack in enumerate("aba")]
        works = ("allreduce", "broadcast", "reduce", "allgather", "reduce_scatter", "alltoall", "gather", "scatter")
        for reducer in ("node", "device"):
            for work in works:
                with self.subTest(reducer=reducer, work=work):
                    job = self.start_job(daemons, [2] * 3, [harness.program("rueda-bench"), work, "--sizes",
                                                            "12e,65549e", "--iters", "2"], ["--reducer", reducer])
                    self.assertEqual(set(job.exit_codes()), {0}, job.output())


if __name__ == "__main__":
    harness.main()
