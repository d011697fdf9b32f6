#!/usr/bin/python3
"""Tests one job on more real daemons than --tree-threshold has by default, so that they are a tree, one rank each.

RUEDA_TREE_DAEMONS and RUEDA_TREE_STEPS make it longer. What it prints of the tree's cost is a table in
docs/decisions/0017-a-tree-of-links.md."""

import os
import re
import signal
import time

import harness
from harness import rank
from schedules import MANY_TENSORS, Schedule, ScheduleTest

DAEMONS = int(os.environ.get("RUEDA_TREE_DAEMONS", "65"))
STEPS = int(os.environ.get("RUEDA_TREE_STEPS", "50"))
FAN_IN = 32  # the default
TIMEOUT = ["--failure-timeout", "60"]


def linked(daemon):
    """Returns how many nodes a daemon has ever had a control connection with."""
    return len(set(re.findall(r"control connection with node (\S+) \(", daemon.output())))


def heard(daemon):
    """Returns the number of messages about order that a daemon has received."""
    return daemon.metric("rueda_control_messages_total", 'kind="order"', 'direction="received"')


class TreeOfManyTest(ScheduleTest):

    def start_many(self, letter, *arguments):
        return self.start_daemons(*(f"{letter}{i:03}" for i in range(DAEMONS)), arguments=[*TIMEOUT, *arguments])

    def test_a_locked_schedule(self):
        daemons = self.start_many("n")
        self.run_locked(daemons, STEPS)
        self.assertEqual(linked(daemons[0]), FAN_IN)
        self.assertGreater(linked(daemons[1]), 1)
        self.assertEqual(linked(daemons[-1]), 1)

    def test_a_rank_below_an_inner_node_that_dies_is_named_everywhere(self):
        daemons = self.start_many("n")
        job = self.start_job(daemons, [1] * DAEMONS, rank("init", "loop:1000"))
        for number in range(DAEMONS):
            job.wait_for(number, "^looping")
        os.kill(job.pid_of(DAEMONS - 1), signal.SIGKILL)
        for number in range(DAEMONS - 1):
            error = job.wait_for(number, r"^error loop:\S+ (\S+) at \S+: (.*)$")
            self.assertRegex(f"{error.group(1)} {error.group(2)}",
                             rf"RUEDA_ERR_RANK_LOST .*\brank {DAEMONS - 1}\b")
        self.assertNotIn(0, job.exit_codes(), job.output())

    def test_what_the_coordinator_hears(self):
        """The job runs without a tree, with the default one, and with a narrow one."""
        flat = self.measure("f", "none", "--tree-threshold", str(DAEMONS))
        tree = self.measure("t", FAN_IN)
        narrow = self.measure("s", 8, "--tree-fan-in", "8")
        self.assertEqual([row["links"] for row in (flat, tree, narrow)], [DAEMONS - 1, FAN_IN, 8])
        for one, other in ((tree, flat), (narrow, tree)):
            self.assertLess(one["heard"], other["heard"])

    def measure(self, letter, fan_in, *arguments):
        daemons = self.start_many(letter, *arguments)
        coordinator = daemons[0]
        began_s = time.monotonic()
        schedule = Schedule(self, daemons, [1] * DAEMONS, f"{MANY_TENSORS}x256", ["--coordination", "negotiate"])
        schedule.wait_for_tensors(2 * (MANY_TENSORS + 1))
        first_s = time.monotonic() - began_s

        def look():
            return (schedule.tensors_done() / (MANY_TENSORS + 1), heard(coordinator), self.order_messages(),
                    coordinator.metric("process_cpu_seconds_total"),
                    sum(daemon.metric("process_cpu_seconds_total") for daemon in daemons), time.monotonic())

        before = look()
        schedule.wait_for_tensors(STEPS * (MANY_TENSORS + 1))
        steps, messages, of_all, cpu_s, cpu_of_all_s, took_s = (b - a for a, b in zip(before, look()))
        schedule.stop()
        heard_before = heard(coordinator)
        schedule = Schedule(self, daemons, [1] * DAEMONS, f"{MANY_TENSORS}x256", ["--coordination", "locked"])
        schedule.wait_until_locked()
        until_locked = heard(coordinator) - heard_before
        schedule.stop()
        row = {"links": linked(coordinator), "heard": messages / steps}
        print(f"{DAEMONS} daemons, fan-in {fan_in}: the coordinator has {row['links']} links and hears {row['heard']:.0f} "
              f"messages of order a step, all send {of_all / steps:.0f}; {until_locked:.0f} heard until locked; CPU a step "
              f"{cpu_s / steps * 1e3:.1f} ms of its daemon, {cpu_of_all_s / steps * 1e3:.0f} ms of all; a step takes "
              f"{took_s / steps * 1e3:.0f} ms, the first two and the start {first_s:.1f} s", flush=True)
        self.stop_daemons()
        self.daemons.clear()
        return row


if __name__ == "__main__":
    harness.main()
