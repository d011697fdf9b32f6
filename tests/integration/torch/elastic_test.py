#!/usr/bin/python3
"""Tests elastic jobs: ranks die, the others go on as the same processes, and who died is started again and takes part."""

import os
import signal
import unittest

import harness
from elastic_support import HAS_TORCH, LONG, PATIENCE_S, ElasticCase
from harness import IntegrationTest, wait_until


@unittest.skipUnless(HAS_TORCH, "PyTorch is not installed (deploy/packages.sh test installs it)")
class ElasticTest(ElasticCase):

    def test_the_others_go_on_when_a_rank_is_killed_and_take_it_in_again(self):
        run = self.train(["-np", "3", "--min-np", "2"], LONG)
        self.kill_in_step(run, 1, 21)
        self.end_when_whole_again(run)
        self.assert_trained(run, (0, 1, 2))
        self.assertEqual([len(self.pids_of(run, slot)) for slot in (0, 1, 2)], [1, 2, 1], run.output())
        self.assertEqual(self.sizes_of(run, 0), [3, 2, 3], run.output())
        for slot in (0, 2):
            self.assertIn("reset from 3 to 2", self.lines_of(run, slot))
            self.assertIn("reset from 2 to 3", self.lines_of(run, slot))
        # Survivors keep their order: rank 2 became 1, and the newcomer is the last.
        self.assertRegex(run.output(), r"\[2\] step \d+ rank 1 of 2")
        self.assertRegex(run.output(), r"\[1\] step \d+ rank 2 of 3")
        # Nobody who lives is taken for dead.
        for slot in (0, 2):
            self.assertNotIn(f"(pid {self.pids_of(run, slot)[0]}) closed its connection", run.output())

    def test_rank_0_is_as_mortal_as_the_others(self):
        run = self.train(["-np", "3", "--min-np", "2"], LONG, "0:21:exit")
        self.end_when_whole_again(run, 1)
        self.assert_trained(run, (0, 1, 2))
        self.assertRegex(run.output(), r"\[1\] step \d+ rank 0 of 2")

    def test_an_exception_in_one_rank_is_its_death(self):
        run = self.train(["-np", "3", "--min-np", "2"], LONG, "2:21:raise")
        self.end_when_whole_again(run)
        self.assert_trained(run, (0, 1, 2))
        self.assertIn("ValueError: made by the test", run.output())
        self.assertEqual(self.sizes_of(run, 1), [3, 2, 3], run.output())

    def test_who_is_given_up_is_done_without(self):
        run = self.train(["-np", "3", "--min-np", "1", "--max-restarts", "0"], 60, "0:11:exit", "2:31:exit")
        self.assert_trained(run, (1,), 60)
        self.assertEqual(self.sizes_of(run, 1), [3, 2, 1], run.output())
        self.assertIn("given up", run.output())

    def test_below_min_np_the_others_wait_until_a_rank_is_back(self):
        run = self.train(["-np", "3", "--min-np", "3"], 60, "1:21:exit")
        self.assert_trained(run, (0, 1, 2), 60)
        self.assertEqual(self.sizes_of(run, 0), [3], run.output())
        self.assertEqual([len(self.pids_of(run, slot)) for slot in (0, 1, 2)], [1, 2, 1], run.output())

    def test_with_too_few_ranks_for_ever_the_job_ends(self):
        run = self.train(["-np", "3", "--min-np", "3", "--max-restarts", "0"], 1000, "1:11:exit")
        self.assertEqual(run.exit_code(PATIENCE_S), 3, run.output())
        self.assertIn("fewer ranks than --min-np 3 are left", run.output())

    def test_who_waits_too_long_is_told_for_whom(self):
        run = self.train(["-np", "3", "--min-np", "3", "--elastic-timeout", "2"], 1000)
        self.assertTrue(wait_until(lambda: "[1] step 11 " in run.output(), PATIENCE_S), run.output())
        os.kill(self.pids_of(run, 1)[0], signal.SIGSTOP)
        os.kill(self.pids_of(run, 2)[0], signal.SIGKILL)
        self.assertNotEqual(run.exit_code(PATIENCE_S), 0, run.output())
        self.assertIn("did not go on within 2 s (--elastic-timeout)", run.output())
        self.assertIn("at least 3 must be there", run.output())

    def test_who_stands_still_is_done_without_and_taken_in_when_it_goes_on(self):
        run = self.train(["-np", "3", "--min-np", "2", "--stall-check-seconds", "1", "--stall-shutdown-seconds", "2", "--start-timeout", "4"],
                         LONG)
        self.assertTrue(wait_until(lambda: "[1] step 11 " in run.output(), PATIENCE_S), run.output())
        stopped = self.pids_of(run, 1)[0]
        os.kill(stopped, signal.SIGSTOP)
        self.assertTrue(wait_until(lambda: 2 in self.sizes_of(run, 0), PATIENCE_S), run.output())
        os.kill(stopped, signal.SIGCONT)
        self.end_when_whole_again(run)
        self.assert_trained(run, (0, 1, 2))
        self.assertEqual(self.sizes_of(run, 0), [3, 2, 3], run.output())
        self.assertEqual(self.pids_of(run, 1), [stopped], "it was not started again")

    def test_who_stands_still_too_long_is_killed_and_started_again(self):
        run = self.train(["-np", "3", "--min-np", "2", "--rank-timeout", "2"], LONG)
        self.assertTrue(wait_until(lambda: "[1] step 11 " in run.output(), PATIENCE_S), run.output())
        os.kill(self.pids_of(run, 1)[0], signal.SIGSTOP)
        self.end_when_whole_again(run)
        self.assert_trained(run, (0, 1, 2))
        self.assertIn("slot 1 has not come back for 2000 ms since its generation ended: killing it (--rank-timeout)", run.output())
        self.assertEqual([len(self.pids_of(run, slot)) for slot in (0, 1, 2)], [1, 2, 1], run.output())
        self.assertEqual(self.sizes_of(run, 0), [3, 2, 3], run.output())

    def test_many_deaths_one_after_the_other(self):
        run = self.train(["-np", "3", "--min-np", "1", "--max-restarts", "100"], LONG)
        killed = set()
        for number in range(harness.amount(3, 12)):
            slot = number % 3

            def has_lived(slot=slot):
                pids = self.pids_of(run, slot)
                return len(pids) > 0 and pids[-1] not in killed and self.lines_of(run, slot)[-1].startswith("step ")

            self.assertTrue(wait_until(has_lived, PATIENCE_S), run.output())
            killed.add(self.pids_of(run, slot)[-1])
            os.kill(self.pids_of(run, slot)[-1], signal.SIGKILL)
        self.end()
        self.assertEqual(run.exit_code(PATIENCE_S), 0, run.output())
        self.assertNotIn("AssertionError", run.output())


class BadInputTest(IntegrationTest):

    def assert_refused(self, text, *flags):
        run = self.ruedarun(*flags, "true")
        self.assertEqual(run.exit_code(), 2)
        self.assertIn(text, run.output())

    def test_flags_that_cannot_be(self):
        self.assert_refused("--min-np 3 is more than the 2 ranks that the job may have", "-np", "2", "--min-np", "3")
        self.assert_refused("--min-np 3 is more than the 2 ranks that the job may have", "-np", "3", "--min-np", "3", "--max-np", "2")
        self.assert_refused("--max-np 2 is less than the 3 ranks that are started", "-np", "3", "--min-np", "1", "--max-np", "2")
        self.assert_refused("--nnodes 3:2 is not a number", "-np", "1", "--nnodes", "3:2")
        self.assert_refused("--nnodes x is not a number", "-np", "1", "--nnodes", "x")
        self.assert_refused("give all of them the same --rdzv-secret-file", "-np", "1", "--nnodes", "1:2", "--node-rank", "0",
                            "--rdzv-endpoint", "192.0.2.1:2000")
        self.assert_refused("are for elastic jobs", "-np", "2", "--max-restarts", "1")
        self.assert_refused("are for elastic jobs", "-np", "2", "--elastic-timeout", "1")
        self.assert_refused("are for elastic jobs", "-np", "2", "--rank-timeout", "1")


if __name__ == "__main__":
    harness.main()
