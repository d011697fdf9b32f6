#!/usr/bin/python3
"""Tests that rueda-sim --order and real daemons say the same about the same job: as many messages about order, exactly, and as
much time spent on them, within a quarter.

RUEDA_SIM_DAEMONS=32 makes it long, and only then are times compared. All daemons share the machine's cores, and so do the
simulated ones. What a message costs is measured as the daemons' processor time, at each size in the same way; the simulator then
says how long a step takes: who waits for whom, and what goes on at the same time. Nobody waits for a share of that cost, which is
found with three daemons; all other sizes follow from it.

Jobs in two modes are there at once and take turns, so that whatever else the machine does meets both; the median of many rounds
counts, and a busy machine compares none."""

import ctypes
import json
import os
import re
import signal
import statistics
import subprocess
import time
import unittest

import harness
from harness import IntegrationTest, rank

DAEMONS = int(os.environ.get("RUEDA_SIM_DAEMONS", "4"))
STEPS = 6
# The steps of a round, over all daemons.
TIMED_STEPS = 2000
# Other programs may use this share of all cores, over this time, when times are compared.
MOST_BUSY = 0.1
LOOKS_S = 3
ROUNDS = 6
JOBS = 3
CALIBRATED_WITH = 3
CLOSE = 0.25


def simulate(nodes, mode, steps, **options):
    """Returns the lines of `rueda-sim --order`, a step each: one tensor a step."""
    command = [harness.program("rueda-sim"), "--order", "--gpus", str(nodes), "--gpus-per-node", "1", "--steps",
               str(steps), "--coordination", mode, "--one-by-one"]
    for name, value in options.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [line for line in map(json.loads, output.splitlines()) if line["study"] == "order"]


def simulated_ms(nodes, coordinator_us, other_us, unawaited):
    """Returns what agreeing on the order takes in a step when all daemons share this machine's cores."""
    def last(mode):
        steps = simulate(nodes, mode, STEPS, cores=os.cpu_count(), message_us=other_us,
                         coordinator_message_us=coordinator_us, unawaited_share=unawaited, wake_us=0)
        return steps[-1]["coordination_ms"]

    return last("negotiate") - last("locked")


def find_unawaited(nodes, coordinator_us, other_us, wanted_ms):
    """Returns the share with which the simulator takes as long."""
    low, high = 0, 1
    for _ in range(12):
        middle = (low + high) / 2
        longer = simulated_ms(nodes, coordinator_us, other_us, middle) > wanted_ms
        low, high = (middle, high) if longer else (low, middle)
    return low


def busy_share():
    """Returns the busy share of all cores' time in the next moments. A load average would remember what this test has done
    before."""
    def idle_and_all():
        with open("/proc/stat", encoding="utf-8") as file:
            ticks = [int(word) for word in file.readline().split()[1:9]]  # proc(5): idle and iowait are the 4th and 5th
        return ticks[3] + ticks[4], sum(ticks)

    idle, total = idle_and_all()
    time.sleep(LOOKS_S)
    idle_then, total_then = idle_and_all()
    return 1 - (idle_then - idle) / (total_then - total)


def processor_ms(pid):
    """Returns the processor time of a process so far, with all its threads, to the nanosecond."""
    clock = ctypes.c_int()
    if ctypes.CDLL(None).clock_getcpuclockid(pid, ctypes.byref(clock)) != 0:
        raise OSError(f"process {pid} has no clock")
    return time.clock_gettime_ns(clock.value) / 1e6


class Nodes:
    """Runs a job of one rank a daemon that goes through steps of one tensor when it is told to."""

    def __init__(self, test, count, mode, *rounds, verb="steps"):
        self.count = count
        names = (f"d{len(test.daemons) + i}" for i in range(count))
        self.daemons = test.start_daemons(*names, arguments=["--coordination", mode, "--failure-timeout", "30"])
        actions = [action for steps in rounds for action in ("pause", f"{verb}:{steps}:64")]
        self.job = test.start_job(self.daemons, [1] * count, rank("init", *actions, "pause", "shutdown"))
        self.pauses = 0
        self.wait_for_pause()

    def wait_for_pause(self):
        self.pauses += 1
        for number in range(self.count):
            done = harness.wait_until(
                lambda rank=number: sum(line == "pausing" for line in self.job.lines_of(rank)) >= self.pauses)
            if not done:
                raise AssertionError(self.job.output())

    def go_on(self):
        for number in range(self.count):
            os.kill(self.job.pid_of(number), signal.SIGUSR1)

    def sent(self):
        """Returns the number of messages about order so far."""
        return sum(daemon.metric("rueda_control_messages_total", 'kind="order"', 'direction="sent"')
                   for daemon in self.daemons)

    def sent_at_rest(self):
        """Returns the same number, once nothing more comes."""
        last = -1
        while last != (last := self.sent()):
            time.sleep(0.05)
        return last

    def end(self, test):
        self.go_on()
        test.assertEqual(self.job.exit_codes(), [0] * self.count, self.job.output())
        for daemon in self.daemons:
            daemon.send(signal.SIGTERM)
            daemon.exit_code()


class SimAgreementTest(IntegrationTest):

    def counts(self, nodes, mode):
        """Returns the counts of each step. Ranks rest after each, because a report that crosses the plan on its way would be one
        more."""
        job = Nodes(self, nodes, mode, *[1] * STEPS)
        sent = [job.sent_at_rest()]
        for _ in range(STEPS):
            job.go_on()
            job.wait_for_pause()
            sent.append(job.sent_at_rest())
        job.end(self)
        return [after - before for before, after in zip(sent, sent[1:])]

    def test_counts(self):
        sizes = [2, 3, 4] if DAEMONS <= 4 else [2, 4, 8, 16, DAEMONS]
        for mode in ("negotiate", "event-driven", "locked"):
            for nodes in sizes:
                with self.subTest(mode=mode, nodes=nodes):
                    expected = [step["order_messages"] for step in simulate(nodes, mode, STEPS)]
                    self.assertGreater(sum(expected), 0)
                    self.assertEqual(self.counts(nodes, mode), expected)

    def round_of(self, job, steps):
        """Returns what a step takes in ms, and the processor time in it of the coordinator and of all other daemons."""
        before = [processor_ms(daemon.pid) for daemon in job.daemons]
        job.go_on()
        job.wait_for_pause()
        after = [processor_ms(daemon.pid) for daemon in job.daemons]
        took_s = [re.fullmatch(rf"{steps} steps took (\S+)", line) for line in job.job.lines_of(0)]
        step_ms = float([match for match in took_s if match][-1].group(1)) * 1e3 / steps
        coordinator, *others = [(end - begin) / (steps + 1) for begin, end in zip(before, after)]
        return step_ms, coordinator, sum(others)

    def order_costs(self, nodes):
        """Returns what the order adds to a step, in ms, and what a message costs the coordinator and the others, in us."""
        steps = TIMED_STEPS // nodes
        added = []
        for _ in range(JOBS):
            jobs = [Nodes(self, nodes, mode, *[steps] * (ROUNDS + 1), verb="timed") for mode in ("negotiate", "locked")]
            for number in range(ROUNDS + 1):
                negotiate, locked = (self.round_of(job, steps) for job in jobs)
                if number > 0:  # the first one locks
                    added.append([more - less for more, less in zip(negotiate, locked)])
            for job in jobs:
                job.end(self)
        measured_ms, coordinator_ms, others_ms = (statistics.median(values) for values in zip(*added))
        step = simulate(nodes, "negotiate", STEPS)[-1]
        at_coordinator = step["coordinator_messages"]
        at_others = 2 * step["order_messages"] - at_coordinator  # each message has two ends
        return measured_ms, coordinator_ms * 1e3 / at_coordinator, others_ms * 1e3 / at_others

    @unittest.skipIf(DAEMONS <= 4, "sim_agreement_long_test compares times")
    def test_times(self):
        busy = busy_share()
        if busy > MOST_BUSY:
            self.skipTest(f"the machine is busy: {busy:.0%} of its cores, where times want {MOST_BUSY:.0%} at the most")
        measured_ms, *costs_us = self.order_costs(CALIBRATED_WITH)
        unawaited = find_unawaited(CALIBRATED_WITH, *costs_us, measured_ms)
        print(f"of a message's cost, nobody waits for {unawaited:.2f}", flush=True)
        for nodes in (2, 4, 8, 16, DAEMONS):
            with self.subTest(nodes=nodes):
                measured_ms, *costs_us = self.order_costs(nodes)
                simulated = simulated_ms(nodes, *costs_us, unawaited)
                print(f"{nodes} daemons: a message costs the coordinator {costs_us[0]:.0f} us, others "
                      f"{costs_us[1]:.0f}; {measured_ms:.3f} ms measured, {simulated:.3f} simulated, "
                      f"{simulated / measured_ms:.2f}", flush=True)
                self.assertAlmostEqual(simulated / measured_ms, 1, delta=CLOSE)


if __name__ == "__main__":
    harness.main()
