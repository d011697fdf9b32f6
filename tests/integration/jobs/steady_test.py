#!/usr/bin/python3
"""Tests that ten thousand steps later no process has grown, and none has had to ask the kernel for pages: arenas are there from
the start."""

import os
import re
import signal

import harness
from harness import IntegrationTest, rank, read_text

STEPS = 10_000
MOST_GROWTH_KIB = 512
# A page that is asked for in every step would make ten thousand.
MOST_FAULTS = 200


def memory(pid):
    """Returns (resident KiB that are its own, minor faults so far)."""
    own = re.search(r"^RssAnon:\s+(\d+) kB$", read_text(f"/proc/{pid}/status"), re.MULTILINE)
    fields = read_text(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()
    return int(own.group(1)), int(fields[7])


class SteadyTest(IntegrationTest):

    def check(self, nodes, ranks_per_node):
        daemons = self.start_daemons(*nodes)
        # The tensors are small enough for the latency path, and large enough for several chunks. The rings of records are touched
        # as far as they have been used, so they go round once before.
        some, many = "steps:20000:100", "steps:300:200000"
        job = self.start_job(daemons, ranks_per_node,
                             rank("init", some, many, "pause", f"steps:{STEPS}:1000", many, "pause", "shutdown"))
        numbers = range(sum(ranks_per_node))
        for number in numbers:
            job.wait_for(number, "^pausing")
        processes = {f"daemon {one.node_id}": one.pid for one in daemons}
        processes.update({f"rank {number}": job.pid_of(number) for number in numbers})
        before = {name: memory(pid) for name, pid in processes.items()}
        for number in numbers:
            os.kill(job.pid_of(number), signal.SIGUSR1)
        for number in numbers:
            job.wait_for(number, f"^ok steps:{STEPS}:1000")
            job.wait_for(number, "^ok steps:300:200000$")
        self.assertTrue(harness.wait_until(lambda: all(
            sum(line == "pausing" for line in job.lines_of(number)) == 2 for number in numbers)), job.output())
        for name, pid in processes.items():
            growth_kib, faults = (now - then for now, then in zip(memory(pid), before[name]))
            print(f"{name}: {growth_kib} KiB more, {faults} minor faults", flush=True)
            self.assertLess(growth_kib, MOST_GROWTH_KIB, name)
            self.assertLess(faults, MOST_FAULTS, name)
        for number in numbers:
            os.kill(job.pid_of(number), signal.SIGUSR1)
        self.assertEqual(job.exit_codes(), [0] * len(nodes), job.output())

    def test_on_one_node(self):
        self.check(["alpha"], [4])

    def test_between_nodes(self):
        self.check(["alpha", "beta"], [2, 2])


if __name__ == "__main__":
    harness.main()
