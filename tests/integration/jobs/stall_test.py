#!/usr/bin/python3
"""Tests ranks that do not submit what others wait for: every daemon says who, and the policy decides the rest."""

import json
import os
import re
import signal
import time

import harness
from harness import IntegrationTest, by_rank, program, rank, wait_until

SOON = {"RUEDA_STALL_CHECK_TIME_SECONDS": "1"}
WARNING = r" warning job \S+: "


class StallTest(IntegrationTest):
    """Runs two daemons with two ranks each."""

    def start_ranks(self, commands, otherwise, extra_env=None, extra=()):
        self.start_daemons("alpha", "beta")
        return self.start_job(self.daemons, [2, 2], by_rank(commands, otherwise), extra=extra,
                              extra_env=SOON if extra_env is None else extra_env)

    def ruedactl(self, daemon, *arguments):
        asked = self.start([program("ruedactl"), "--socket", daemon.socket, *arguments])
        self.assertEqual(asked.exit_code(), 0, asked.output())
        return asked.output()

    def stalls(self, daemon):
        return json.loads(self.ruedactl(daemon, "stalls", "--json"))["stalls"]

    def wake(self, job, *numbers):
        for number in numbers:
            job.wait_for(number, "^pausing")
            os.kill(job.pid_of(number), signal.SIGUSR1)

    def test_a_stall_is_told_everywhere_and_ends_by_itself(self):
        grad = "reduce:grad:float32:sum:100"
        job = self.start_ranks({2: rank("init", "steps:3:1000", "pause", grad, "pause", "shutdown")},
                               rank("init", "steps:3:1000", grad, "pause", "shutdown"))
        for daemon in self.daemons:
            daemon.wait_for(WARNING + r'tensor "grad" was submitted \d+ s ago by ranks 0-1, 3, and not by rank 2 '
                            r'on node beta \(last submitted "steps" \d+ s ago, last completed "steps" \d+ s ago\)$')
            self.assertTrue(wait_until(lambda one=daemon: one.metric("rueda_stalled_tensors") == 1))
            [stall] = self.stalls(daemon)
            self.assertEqual(stall["tensor"], "grad")
            self.assertEqual(stall["submitted_ranks"], [0, 1, 3])
            self.assertGreaterEqual(stall["waiting_seconds"], 1)
            [missing] = stall["missing_ranks"]
            self.assertEqual((missing["rank"], missing["node_id"]), (2, "beta"))
            self.assertEqual((missing["last_submitted"], missing["last_completed"]), ("steps", "steps"))
            self.assertEqual(missing["similar_names"], [])
            self.assertRegex(self.ruedactl(daemon, "stalls"), r"(?m)^job-\w+ +0 +grad +\d+s +3 ranks +1 rank$")
        self.wake(job, 2)
        for daemon in self.daemons:
            daemon.wait_for(r' info job \S+: tensor "grad" waits no longer, after \d+ s$')
            self.assertEqual(self.ruedactl(daemon, "stalls"), "no stalls")
            # The stall is not logged with every look at it, but when its age has doubled.
            ages_s = [int(age) for age in re.findall(r'tensor "grad" was submitted (\d+) s ago', daemon.output())]
            self.assertTrue(all(later >= 2 * earlier for earlier, later in zip(ages_s, ages_s[1:])), ages_s)
        for number in range(4):
            job.wait_for(number, "^ok reduce:grad")
        self.wake(job, 0, 1, 2, 3)
        self.assertEqual(job.exit_codes(), [0, 0], job.output())

    def test_a_rank_that_has_done_nothing_yet(self):
        job = self.start_ranks({1: rank("init", "pause", "barrier:first", "shutdown")},
                               rank("init", "barrier:first", "shutdown"))
        for daemon in self.daemons:
            daemon.wait_for(WARNING + r'tensor "first" .* by ranks 0, 2-3, and not by rank 1 on node alpha '
                            r"\(it has not submitted any tensor\)$")
        self.wake(job, 1)
        self.assertEqual(job.exit_codes(), [0, 0], job.output())

    def test_a_similar_name_is_pointed_out(self):
        right, wrong = "layer1.weight", "layer1.weights"
        ends = ["barrier:end", "shutdown"]
        job = self.start_ranks(
            {3: rank("init", f"submit:{wrong}:100", "pause", f"reduce:{right}:float32:average:100", *ends)},
            rank("init", f"submit:{right}:100", "pause", f"reduce:{wrong}:float32:average:100", *ends))
        for daemon in self.daemons:
            daemon.wait_for(rf'tensor "{right}" .* by ranks 0-2, and not by rank 3 on node beta \(.*; has the '
                            rf'similar name "{wrong}" in flight\)')
            daemon.wait_for(rf'tensor "{wrong}" .* by rank 3, and not by rank 0 on node alpha \(.*; has the '
                            rf'similar name "{right}" in flight\)')
            similar = {stall["tensor"]: stall["missing_ranks"][0]["similar_names"] for stall in self.stalls(daemon)}
            self.assertEqual(similar, {right: [wrong], wrong: [right]})
        self.wake(job, 0, 1, 2, 3)
        self.assertEqual(job.exit_codes(), [0, 0], job.output())

    def test_the_policy_may_end_the_job(self):
        grad = "reduce:grad:float32:sum:100"
        job = self.start_ranks({2: rank("init", "pause")}, rank("init", grad),
                               extra=["--stall-check-seconds", "1", "--stall-shutdown-seconds", "2"], extra_env={})
        for number in (0, 1, 3):
            job.wait_for(number, r'^error reduce:grad\S* RUEDA_ERR_SHUT_DOWN at \S+: .*tensor "grad" .* by ranks 0-1, 3, '
                         r"and not by rank 2 on node beta \(.*\); no stall may be longer than 2 s")
        self.assertNotIn(0, job.exit_codes())
        for daemon in self.daemons:
            self.assertEqual(self.ruedactl(daemon, "stalls"), "no stalls")
        self.assert_job_runs(self.daemons, [2, 2])

    def test_an_idle_job_has_none(self):
        work = rank("init", "steps:3:1000", "pause", "steps:3:1000", "shutdown")
        job = self.start_ranks({}, work)
        for number in range(4):
            job.wait_for(number, "^pausing")
        time.sleep(3)  # goes past the check time, because what must not come has no event to wait for
        for daemon in self.daemons:
            self.assertEqual(self.stalls(daemon), [])
            self.assertEqual(daemon.metric("rueda_stalled_tensors"), 0)
            self.assertNotRegex(daemon.output(), "was submitted")
        self.wake(job, 0, 1, 2, 3)
        self.assertEqual(job.exit_codes(), [0, 0], job.output())

    def test_without_a_check_time_nobody_is_told(self):
        self.start_daemons("alpha", "beta")
        job = self.start_job(self.daemons, [1, 1], by_rank(
            {1: rank("init", "pause", "barrier:late", "shutdown")}, rank("init", "barrier:late", "shutdown")),
                             extra_env={"RUEDA_STALL_CHECK_TIME_SECONDS": "0"})
        job.wait_for(1, "^pausing")
        time.sleep(3)  # goes past the check time
        for daemon in self.daemons:
            self.assertNotRegex(daemon.output(), "was submitted")
        self.wake(job, 1)
        self.assertEqual(job.exit_codes(), [0, 0], job.output())


if __name__ == "__main__":
    harness.main()
