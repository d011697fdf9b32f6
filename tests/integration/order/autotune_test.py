#!/usr/bin/python3
"""Tests autotuning and recorded plans, live: a search on two nodes whose sums are all right, its log, and plans that are in force
from the first step of another run on."""

import csv
import json
import os
import re

import harness
from harness import SLOWNESS, wait_until
from schedules import Schedule, ScheduleTest

TENSORS = "12x1000"
COUNT = 12 + 1  # the tensors of a step, and the one in which the ranks are told what to do
# The time of a search, which takes some 80 windows of a fifth of a second.
SEARCH_S = 120 * SLOWNESS
ABANDONED = "rueda_plans_abandoned_total"


def batches_of(schedule):
    return [batch["tensors"] for batch in schedule.plan()]


class AutotuneTest(ScheduleTest):

    def setUp(self):
        super().setUp()
        self.nodes = self.start_daemons("alpha", "beta")
        self.file = os.path.join(self.folder, "written")

    def schedule(self, *flags, tensors=TENSORS):
        return Schedule(self, self.nodes, [2, 1], tensors, flags)

    def log(self):
        return list(csv.DictReader(harness.read_text(self.file).splitlines()))

    def has_settled(self):
        lines = self.log()
        return bool(lines) and lines[-1]["phase"] == "settled" and lines[-1]["verdict"]

    def metrics(self, name):
        return [node.metric(name) for node in self.nodes]

    def locks_given_up(self):
        return sum(len(re.findall("unlocked before .* is not ready after", node.output())) for node in self.nodes)

    @harness.needs_long_tier
    def test_a_search_settles_and_then_nothing_is_said(self):
        schedule = self.schedule("--autotune", f"--autotune-log={self.file}")
        verdict = wait_until(self.has_settled, SEARCH_S)
        self.assertIn(verdict, ("chosen", "no gain, defaults kept"), self.log())
        lines = self.log()
        self.assertEqual(list(lines[0]),
                         ["step", "phase", "fusion_bytes", "chunk_bytes", "streams", "cutover", "step_ms", "verdict"])
        measured = [line for line in lines if not line["verdict"]]
        self.assertGreater(len({tuple(list(line.values())[2:6]) for line in measured}), 8, "settings were tried")
        self.assertTrue(all(float(line["step_ms"]) > 0 for line in measured))
        self.assertEqual(self.metrics("rueda_autotune_windows_total"), [len(measured), 0])
        self.assertEqual(self.metrics("rueda_autotuning"), [0, 0])
        self.assertIn("autotuning has settled after", schedule.job.output())
        schedule.wait_until_locked()
        before = self.order_messages()
        schedule.wait_for_tensors(50 * COUNT)
        self.assertEqual(self.order_messages(), before)
        schedule.stop()

    @harness.needs_long_tier
    def test_deviations_during_a_search_end_with_right_sums(self):
        schedule = self.schedule("--autotune", f"--autotune-log={self.file}")
        self.assertTrue(wait_until(self.log))
        for seed in range(6):
            schedule.wait_until_locked()
            schedule.wait_for_tensors(40 * COUNT)
            schedule.deviate(("shape", "unknown", "skip")[seed % 3], seed)
        schedule.wait_for_deviations()
        schedule.stop()

    def test_what_is_deterministic_is_not_tuned(self):
        schedule = self.schedule("--autotune", f"--autotune-log={self.file}", "--deterministic")
        schedule.wait_until_locked()
        schedule.wait_for_tensors(200 * COUNT)
        self.assertIn("autotuning is off: --deterministic leaves nothing to timing", schedule.job.output())
        self.assertEqual(self.log(), [])
        schedule.stop()

    def test_nodes_that_were_told_different_things_do_not_start(self):
        endpoint = f"127.0.0.1:{harness.free_port()}"
        launchers = [
            self.ruedarun("-np", "1", "--socket", node.socket, "--nnodes", "2", "--node-rank", str(index),
                          "--rdzv-endpoint", endpoint, *flags, "--", *harness.rank("init", "shutdown"))
            for index, (node, flags) in enumerate(zip(self.nodes, ([], ["--autotune"])))]
        for launcher in launchers:
            launcher.exit_code()
            self.assertRegex(launcher.output(), "error init RUEDA_ERR_MISMATCH.* --autotune or --plan no on node \\S+ and yes on node "
                             "\\S+; give it the same value")

    # --- Recorded plans ------------------------------------------------------------------------------

    def recorded(self):
        schedule = self.schedule(f"--record-plan={self.file}", "--fusion-threshold=16K")
        schedule.wait_until_locked()
        self.assertTrue(wait_until(lambda: os.path.exists(self.file)), schedule.describe_daemons())
        batches = wait_until(lambda: batches_of(schedule))
        schedule.stop()
        self.assertGreater(len(batches), 2)
        return batches

    def test_a_recorded_plan_is_in_force_from_the_first_step_on(self):
        batches = self.recorded()
        written = json.loads(harness.read_text(self.file))["batches"]
        self.assertEqual([[tensor["name"] for tensor in batch["tensors"]] for batch in written], batches)
        # If the machine keeps a rank from its tensors for long, the lock is given up, and further messages follow.
        for _ in range(5):
            said, given_up = self.order_messages(), self.locks_given_up()
            schedule = self.schedule(f"--plan={self.file}")
            schedule.wait_for_tensors(20 * COUNT)
            self.assertEqual(batches_of(schedule), batches)
            said = self.order_messages() - said
            schedule.stop()
            if self.locks_given_up() == given_up:
                break
        self.assertLessEqual(said, 2, "the lock itself, and no more")
        self.assertEqual(self.metrics(ABANDONED), [0, 0])
        self.assertRegex(self.nodes[1].output(), "locked as recorded from operation 1 on")

    def test_one_that_does_not_fit_is_said_once_and_the_job_goes_on(self):
        self.recorded()
        schedule = self.schedule(f"--plan={self.file}", tensors="5x300")
        schedule.wait_for_tensors(100 * 6)
        schedule.wait_until_locked()
        self.assertEqual(self.metrics(ABANDONED), [1, 1])
        schedule.stop()
        for node in self.nodes:
            self.assertEqual(node.output().count("the recorded plan is abandoned"), 1, node.output())
            self.assertIn("Record the plan anew", node.output())

    def test_a_file_that_is_no_plan_is_refused(self):
        for text, why in (("{}", "it is not what --record-plan writes"), ("batches", "it is not what --record-plan")):
            with open(self.file, "w", encoding="utf-8") as file:
                file.write(text)
            run = self.ruedarun("-np", "1", "--socket", self.nodes[0].socket, f"--plan={self.file}", "true")
            self.assertEqual(run.exit_code(), 2, run.output())
            self.assertIn(f"cannot replay the plan {self.file}: {why}", run.output())
        run = self.ruedarun("-np", "1", "--socket", self.nodes[0].socket, "--plan=/nowhere", "true")
        self.assertEqual(run.exit_code(), 2, run.output())
        self.assertIn("No such file", run.output())


if __name__ == "__main__":
    harness.main()
