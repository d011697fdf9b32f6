#!/usr/bin/python3
"""Tests locked schedules, live: nothing is sent to agree on the order, and every way to leave a schedule (rule L6 of
docs/protocol.md) unlocks it, with no wrong sum, and locks it again.

RUEDA_DEVIATIONS is how often each way is taken (2; in the long tier 5); RUEDA_SEED repeats a run."""

import json
import os
import random
import re
import shutil
import subprocess
import unittest

import harness
from harness import wait_until
from schedules import Schedule, ScheduleTest

WAYS = ("shape", "unknown", "skip", "again", "wait", "poll", "lack")
REPEATS = int(os.environ.get("RUEDA_DEVIATIONS") or harness.amount(2, 5, 2 if harness.IS_LONG else 1))
RESNET50_TENSORS = 161 + 1  # the tensors, and the one in which the ranks are told what to do
STEPS = harness.amount(50, 100, 10)
MOST_WINDOWS = 5
# A heartbeat has 16 bytes in HTTP/2, and gRPC adds window updates, and now and then a ping with its answer.
MOST_BYTES_OF_A_HEARTBEAT = 120


def control_bytes(daemons):
    """Returns what was sent on connections to the daemons' control ports, seen from outside."""
    ports = " or ".join(f"sport = :{daemon.port('control')} or dport = :{daemon.port('control')}"
                        for daemon in daemons)
    shown = subprocess.run(["ss", "-tinOH", "state", "established", f"( {ports} )"], text=True,
                           capture_output=True, check=True).stdout
    sent = re.findall(r"\bbytes_sent:(\d+)", shown)
    return sum(map(int, sent))


class SilenceTest(ScheduleTest):

    def messages_and_bytes(self, mode, steps, *flags):
        """Returns what `steps` steps of ResNet-50 take, once they are settled: (messages about order, bytes on control
        connections, heartbeats). Steps in which a rank came too late for the lock are not settled."""
        daemons = self.start_daemons("alpha", "beta")
        schedule = Schedule(self, daemons, [2, 2], "resnet50", ["--coordination", mode, *flags])
        for _ in range(MOST_WINDOWS):
            if mode == "locked":
                schedule.wait_until_locked()
            late = self.late_ranks(daemons)
            spent = self.spend(schedule, steps)
            if self.late_ranks(daemons) == late:
                break
        print(f"{mode}: {steps} steps, {spent[0]:.0f} messages of order, {spent[2]:.0f} heartbeats, "
              f"{spent[1]} bytes on control connections", flush=True)
        if mode == "locked":
            self.assert_plan_has(daemons, RESNET50_TENSORS)
        schedule.stop()
        self.said = schedule.describe_daemons()
        return spent

    @staticmethod
    def late_ranks(daemons):
        """Returns how often a lock was given up because a machine that was busy elsewhere kept ranks from their tensors."""
        return sum(len(re.findall(r"unlocked before .* is not ready after", daemon.output())) for daemon in daemons)

    def spend(self, schedule, steps):
        """Makes the steps that messages_and_bytes() measures."""
        schedule.wait_for_tensors(RESNET50_TENSORS)
        # Bytes are in the kernel's hands a moment after a message is counted, so they are read between the counts of messages.
        messages = self.order_messages()
        heartbeats = self.heartbeats()
        sent = control_bytes(schedule.daemons)
        schedule.wait_for_tensors(steps * RESNET50_TENSORS)
        sent = control_bytes(schedule.daemons) - sent
        heartbeats = self.heartbeats() - heartbeats
        messages = self.order_messages() - messages
        return messages, sent, heartbeats

    def assert_plan_has(self, daemons, tensors):
        """Checks that every node shows the same plan to its operator, while one is in force."""
        plans = wait_until(lambda: self.shown_plans(daemons))
        self.assertTrue(plans, "a node shows no plan")
        self.assertEqual(plans[0], plans[1])
        names = [name for batch in plans[0] for name in batch]
        self.assertEqual((len(names), len(set(names))), (tensors, tensors))

    def shown_plans(self, daemons):
        """Returns the tensors of every batch, of each node, or nothing when a node shows no plan."""
        plans = []
        for daemon in daemons:
            run = self.start([harness.program("ruedactl"), "--socket", daemon.socket, "--json", "jobs", "--plan"])
            self.assertEqual(run.exit_code(), 0, run.output())
            plans += [[batch["tensors"] for batch in plan["batches"]] for plan in json.loads(run.output())["plans"]]
        return plans if len(plans) == len(daemons) else []

    def heartbeats(self):
        return sum(daemon.metric("rueda_control_messages_total", 'kind="heartbeat"', 'direction="sent"')
                   for daemon in self.daemons)

    def assert_sends_nothing(self, *flags):
        messages, sent, heartbeats = self.messages_and_bytes("locked", STEPS, *flags)
        self.assertEqual(messages, 0, self.said)
        # One heartbeat a side may be on its way at either end of the window.
        self.assertLessEqual(sent, (heartbeats + 2) * MOST_BYTES_OF_A_HEARTBEAT, self.said)

    @unittest.skipUnless(shutil.which("ss"), "needs ss: deploy/packages.sh test")
    def test_a_locked_schedule_sends_nothing(self):
        self.assert_sends_nothing()

    @unittest.skipUnless(shutil.which("ss"), "needs ss: deploy/packages.sh test")
    def test_nor_does_that_of_an_elastic_job(self):
        self.assert_sends_nothing("--min-np", "1")

    @unittest.skipUnless(shutil.which("ss"), "needs ss: deploy/packages.sh test")
    def test_what_the_same_looks_like_when_it_is_negotiated(self):
        """This shows that the test above could fail."""
        messages, sent, heartbeats = self.messages_and_bytes("negotiate", 5)
        self.assertGreaterEqual(messages, 2 * 5)
        self.assertGreater(sent, (heartbeats + 2) * MOST_BYTES_OF_A_HEARTBEAT)


class DeviationTest(ScheduleTest):
    """Runs on three nodes, beside another job on the same daemons."""

    TENSORS = 12
    SIZE = 1000
    # A plan has several batches, of several tensors each.
    FLAGS = ["--coordination", "locked", "--fusion-threshold", "16K"]

    def setUp(self):
        super().setUp()
        seed = int(os.environ.get("RUEDA_SEED", random.randrange(2**32)))
        print(f"RUEDA_SEED={seed}", flush=True)
        self.random = random.Random(seed)
        daemons = self.start_daemons("alpha", "beta", "gamma")
        self.load = Schedule(self, daemons, [1, 1, 1], "3x20000", ["--coordination", "locked"])
        self.schedule = Schedule(self, daemons, [2, 1, 1], f"{self.TENSORS}x{self.SIZE}", self.FLAGS)

    def finish(self):
        for schedule in (self.schedule, self.load):
            schedule.wait_until_locked()
            schedule.stop()

    def has_usual_plan(self):
        names = [name for batch in self.schedule.plan() for name in batch["tensors"]]
        usual = [f"layer{i}" for i in range(self.TENSORS)] + ["control"]
        return names == usual and not self.schedule.plan_branches()

    def seed(self):
        return self.random.randrange(2**31)

    def test_every_way_to_leave_unlocks_and_locks_again(self):
        ways = [way for way in WAYS for _ in range(REPEATS)]
        self.random.shuffle(ways)
        for way in ways:
            self.schedule.wait_until_locked()
            self.load.wait_until_locked()
            # The wait is long enough for the lock to have held, which it must do to be made again soon.
            self.schedule.wait_for_tensors((self.TENSORS + 1) * self.random.randint(10, 20))
            # What was done before may be an alternative of the plan, and is then no deviation any more (L9).
            must_be_noticed = way in ("shape", "unknown") or self.has_usual_plan()
            before = self.order_messages()
            self.schedule.deviate(way, self.seed())
            self.schedule.wait_for_deviations()
            if must_be_noticed:
                self.assertGreater(self.order_messages(), before, f"{way} went unnoticed")
        self.finish()

    def test_one_after_the_other_without_waiting_for_a_lock(self):
        """Deviations also come while a lock is being made or undone."""
        for _ in range(REPEATS):
            for way in self.random.choices(WAYS, k=len(WAYS)):
                self.schedule.keep(self.random.randint(0, 6))
                self.schedule.deviate(way, self.seed())
            self.schedule.wait_for_deviations()
        self.finish()


class AlternativesTest(ScheduleTest):
    """Tests rule L9: steps of four kinds in turn, each with tensors that others lack."""

    TENSORS = 12

    def test_steps_of_several_kinds_send_nothing(self):
        daemons = self.start_daemons("alpha", "beta")
        schedule = Schedule(self, daemons, [2, 2], f"{self.TENSORS}x1000", DeviationTest.FLAGS)
        schedule.wait_until_locked()
        schedule.deviate("alternate", 0)
        schedule.wait_for_deviations()
        # In twelve steps every kind follows every other.
        rounds = 12 * self.TENSORS

        def is_silent():
            before = self.order_messages()
            schedule.wait_for_tensors(rounds)
            return schedule.is_locked() and self.order_messages() == before

        self.assertTrue(wait_until(is_silent), schedule.describe_daemons())
        before = self.order_messages()
        schedule.wait_for_tensors(5 * rounds)
        self.assertEqual(self.order_messages(), before, schedule.describe_daemons())
        self.assertTrue(schedule.plan_branches())
        for batch in schedule.plan():
            if "extra0" in batch["tensors"] or "layer1" in batch["tensors"]:
                self.assertEqual(len(batch["tensors"]), 1, batch)
        schedule.stop()


class CheckTest(ScheduleTest):

    def test_a_wrong_sum_is_seen(self):
        daemon = self.start_daemon("alpha", fault="reduce")
        path = os.path.join(self.folder, "commands")
        os.mkfifo(path)
        job = self.start_job([daemon], [2], [harness.program("integration_schedule_rank"), "2x100", path])
        self.assertNotEqual(job.exit_codes(), [0])
        self.assertRegex(job.output(), r"error wrong sum: layer\d in step 1, element 0: ")


if __name__ == "__main__":
    harness.main()
