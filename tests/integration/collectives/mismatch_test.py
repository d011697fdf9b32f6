#!/usr/bin/python3
"""Tests ranks that disagree on a tensor, in each of its fields: the error names the tensor, both ranks and both values, on every
rank, between nodes and within one, before and while the schedule is locked; and the job goes on."""

import os
import signal

import harness
from harness import IntegrationTest, by_rank, rank, wait_until

# Each case has (field, what most ranks submit, what one submits, how the two values are written).
CASES = (
    ("shape", "reduce:steps:float32:sum:1000", "reduce:steps:float32:sum:999", r"\[1000\]", r"\[999\]"),
    ("dtype", "reduce:steps:float32:sum:1000", "reduce:steps:int32:sum:1000", "float32", "int32"),
    ("op", "reduce:steps:float32:sum:1000", "reduce:steps:float32:max:1000", "sum", "max"),
    ("prescale factor", "reduce:steps:float32:sum:1000:1:1", "reduce:steps:float32:sum:1000:0.5:1", "1", r"0\.5"),
    ("postscale factor", "reduce:steps:float32:sum:1000:1:1", "reduce:steps:float32:sum:1000:1:0.25", "1", r"0\.25"),
    ("wire dtype", "reduce:steps:float32:sum:1000:1:1", "reduce:steps:float32:sum:1000:1:1:bfloat16", "the tensor's own",
     "bfloat16"),
    ("collective", "reduce:steps:float32:sum:1000", "broadcast:steps:0:1000", "allreduce", "broadcast"),
    ("root rank", "broadcast:buffer:0:1000", "broadcast:buffer:1:1000", "0", "1"),
)
BETWEEN = "steps:40:1000"  # a step is this one tensor, and is locked after the third


class MismatchTest(IntegrationTest):

    def actions(self, which):
        wanted = ["init"]
        for case in CASES:
            wanted += [BETWEEN, "pause", case[which]]
        return rank(*wanted, BETWEEN, "shutdown")

    def go_on(self, job, ranks, turn, before_signal):
        for number in range(ranks):
            self.assertTrue(wait_until(lambda n=number: job.lines_of(n).count("pausing") == turn), job.output())
        before_signal()
        for number in range(ranks):
            os.kill(job.pid_of(number), signal.SIGUSR1)

    def check(self, mode, ranks_per_node, odd_one):
        daemons = self.start_daemons(*["alpha", "beta"][:len(ranks_per_node)])
        ranks = sum(ranks_per_node)
        job = self.start_job(daemons, ranks_per_node, by_rank({odd_one: self.actions(2)}, self.actions(1)),
                             ["--coordination", mode])

        def assert_locked():
            locked = [daemon.metric("rueda_locked") for daemon in daemons]
            self.assertEqual(locked, [float(mode == "locked")] * len(daemons), job.output())

        for turn in range(1, len(CASES) + 1):
            self.go_on(job, ranks, turn, assert_locked)
        self.assertEqual(set(job.exit_codes()), {0}, job.output())
        for number in range(ranks):
            lines = job.lines_of(number)
            errors = [line for line in lines if line.startswith("error ")]
            self.assertEqual(len(errors), len(CASES), job.output())
            self.assertEqual(lines.count(f"ok {BETWEEN}"), len(CASES) + 1, job.output())
            for error, (field, usual, _, left, right) in zip(errors, CASES):
                name = usual.split(":")[1]
                both = [rf"{left} on rank \d and {right} on rank {odd_one}\b",
                        rf"{right} on rank {odd_one} and {left} on rank \d\b"]
                self.assertRegex(error, rf'RUEDA_ERR_MISMATCH at \S+: ranks disagree on tensor "{name}": {field} is '
                                        rf'({"|".join(both)})', f"rank {number}, {mode}")

    def test_between_nodes(self):
        self.check("negotiate", [2, 2], 3)

    def test_within_a_node(self):
        self.check("negotiate", [2, 1], 1)

    def test_between_nodes_while_locked(self):
        self.check("locked", [1, 2], 2)

    def test_within_a_node_while_locked(self):
        self.check("locked", [2, 1], 1)

    def test_on_one_node(self):
        self.check("locked", [2], 1)


if __name__ == "__main__":
    harness.main()
