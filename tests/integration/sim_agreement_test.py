#!/usr/bin/python3
"""rueda-sim --order and real daemons say the same about the same job: as many messages about order, exactly, and as
much time spent on them, within a quarter.

RUEDA_SIM_DAEMONS=32 makes it long, and only then are times compared. All daemons share the machine's cores, and so do
the simulated ones; what a message costs there is measured with eight daemons in the same run, and what fewer and more
of them take follows from it. Whatever else the machine does makes times longer: the least of many rounds counts, and a
busy machine compares none.
"""

import json
import os
import signal
import subprocess
import time
import unittest

import harness
from harness import IntegrationTest, rank

DAEMONS = int(os.environ.get("RUEDA_SIM_DAEMONS", "4"))
STEPS = 6
TIMED_STEPS = 1000
# What else may run, as a load average, when times are compared.
MOST_LOAD = 0.5
ROUNDS = 8
JOBS = 3
CALIBRATED_WITH = 8
CLOSE = 0.25


def simulate(nodes, mode, steps, **options):
    """The lines of `rueda-sim --order`, a step each: one tensor a step."""
    command = [harness.program("rueda-sim"), "--order", "--gpus", str(nodes), "--gpus-per-node", "1", "--steps",
               str(steps), "--coordination", mode, "--one-by-one"]
    for name, value in options.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [line for line in map(json.loads, output.splitlines()) if line["study"] == "order"]


def simulated_ms(nodes, message_us):
    """What agreeing on the order takes in a step when all daemons share this machine's cores."""
    def last(mode):
        steps = simulate(nodes, mode, STEPS, cores=os.cpu_count(), message_us=message_us, wake_us=0)
        return steps[-1]["coordination_ms"]

    return last("negotiate") - last("locked")


class Nodes:
    """A job of one rank a daemon that goes through steps of one tensor when it is told to."""

    def __init__(self, test, count, mode, *rounds):
        self.count = count
        names = (f"d{len(test.daemons) + i}" for i in range(count))
        self.daemons = test.start_daemons(*names, arguments=["--coordination", mode, "--timeout-ms", "30000"])
        actions = [action for steps in rounds for action in ("pause", f"steps:{steps}:64")]
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
        """Messages about order so far."""
        return sum(daemon.metric("rueda_control_messages_total", 'kind="order"', 'direction="sent"')
                   for daemon in self.daemons)

    def sent_at_rest(self):
        """The same, once nothing more comes."""
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
        """Of each step. Ranks rest after each: a report that crosses the plan on its way would be one more."""
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
        for mode in ("negotiate", "nonblocking", "locked"):
            for nodes in sizes:
                with self.subTest(mode=mode, nodes=nodes):
                    expected = [step["order_messages"] for step in simulate(nodes, mode, STEPS)]
                    self.assertGreater(sum(expected), 0)
                    self.assertEqual(self.counts(nodes, mode), expected)

    def step_ms(self, nodes, mode):
        """The least of several rounds; each is measured by the clock outside."""
        job = Nodes(self, nodes, mode, STEPS, *[TIMED_STEPS // nodes] * ROUNDS)
        job.go_on()
        job.wait_for_pause()
        times = []
        for _ in range(ROUNDS):
            begin = time.monotonic()
            job.go_on()
            job.wait_for_pause()
            times.append((time.monotonic() - begin) * 1e3 / (TIMED_STEPS // nodes))
        job.end(self)
        return min(times)

    def coordination_ms(self, nodes):
        """What a step takes longer because its order is agreed on."""
        negotiate, locked = (min(self.step_ms(nodes, mode) for _ in range(JOBS)) for mode in ("negotiate", "locked"))
        return negotiate - locked

    @unittest.skipIf(DAEMONS <= 4, "sim_agreement_long_test compares times")
    def test_times(self):
        load = os.getloadavg()[0]
        if load > MOST_LOAD:
            self.skipTest(f"the machine is busy: a load of {load:.1f}, where times want {MOST_LOAD} at the most")
        message_us = self.calibrate(self.coordination_ms(CALIBRATED_WITH))
        print(f"a message costs {message_us:.1f} us", flush=True)
        for nodes in (2, 4, 16, DAEMONS):
            with self.subTest(nodes=nodes):
                measured, simulated = self.coordination_ms(nodes), simulated_ms(nodes, message_us)
                print(f"{nodes} daemons: {measured:.3f} ms measured, {simulated:.3f} simulated", flush=True)
                self.assertAlmostEqual(simulated / measured, 1, delta=CLOSE)

    def calibrate(self, wanted_ms):
        low, high = 0, 1000
        for _ in range(20):
            middle = (low + high) / 2
            low, high = (middle, high) if simulated_ms(CALIBRATED_WITH, middle) < wanted_ms else (low, middle)
        return high


if __name__ == "__main__":
    harness.main()
