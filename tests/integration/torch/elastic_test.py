#!/usr/bin/python3
"""Tests elastic jobs: ranks die, the others go on as the same processes, and who died is started again and takes part."""

import os
import signal
import unittest

import harness
from elastic_support import FOLDER, HAS_NUMPY, HAS_TORCH, LONG, PATIENCE_S, PYTHON, ElasticCase
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
        self.assertIn("slot 1 stands still: others have waited for it, and 200 ms after they gave it up it has not moved: "
                      "killing it (--rank-timeout)", run.output())
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


@unittest.skipUnless(HAS_NUMPY, "NumPy is not installed (deploy/packages.sh test installs it)")
class ArenaTest(ElasticCase):

    def test_memory_is_not_copied_after_a_reset(self):
        """It once was: a daemon maps an arena once, and a reset ended the session that had it."""
        program = os.path.join(FOLDER, "elastic_arena_rank.py")
        run = self.ruedarun("-np", "3", "--min-np", "2", "env", "-C", self.folder, PYTHON, program, "2")
        self.assertTrue(wait_until(lambda: "[0] size 3 sum 6 6 copied 0" in run.output() and "[0] size 2 sum 4 4 copied 0" in run.output()
                                   and run.output().count("[0] size 3 sum 6 6 copied 0") == 2, PATIENCE_S), run.output())
        for slot in (0, 2):
            self.assertEqual([line for line in self.lines_of(run, slot) if line.startswith("size")],
                             ["size 3 sum 6 6 copied 0", "size 2 sum 4 4 copied 0", "size 3 sum 6 6 copied 0"], run.output())


class DiscoveryTest(ElasticCase):
    """Jobs whose hosts a script lists."""

    def setUp(self):
        super().setUp()
        self.list("localhost:2")

    def list(self, *lines):
        whole = os.path.join(self.folder, "hosts")
        with open(f"{whole}.new", "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        os.replace(f"{whole}.new", whole)

    def run_listed(self, *flags, command=None):
        return self.ruedarun("--min-np", "1", "--host-discovery-script", command or f"cat {self.folder}/hosts", *flags)

    @unittest.skipUnless(HAS_TORCH, "PyTorch is not installed (deploy/packages.sh test installs it)")
    def test_the_host_has_as_many_ranks_as_the_script_says(self):
        program = os.path.join(FOLDER, "elastic_rank.py")
        run = self.run_listed("env", "-C", self.folder, PYTHON, program, str(LONG))
        self.wait_while_it_runs(run, lambda: self.sizes_of(run, 0) == [2])
        self.list("# a comment", "other.example.org:4", "localhost:3")
        self.wait_while_it_runs(run, lambda: self.sizes_of(run, 0) == [2, 3])
        self.list("localhost:1")
        self.wait_while_it_runs(run, lambda: self.sizes_of(run, 0) == [2, 3, 1])
        self.list("localhost")
        self.list("localhost:2")
        self.wait_while_it_runs(run, lambda: self.sizes_of(run, 0) == [2, 3, 1, 2])
        self.end()
        self.assert_trained(run, (0, 1))
        self.assertEqual([len(self.pids_of(run, slot)) for slot in (0, 1, 2)], [1, 2, 1], run.output())
        self.assertIn("slot 2 has left: ending it", run.output())
        # No step is lost: who leaves does so between two of them.
        self.assertNotIn("Error", run.output())

    @unittest.skipUnless(HAS_TORCH, "PyTorch is not installed (deploy/packages.sh test installs it)")
    def test_a_host_that_goes_comes_back_with_the_same_command(self):
        program = os.path.join(FOLDER, "elastic_rank.py")
        run = self.run_listed("--elastic-timeout", "60", "env", "-C", self.folder, PYTHON, program, str(LONG))
        self.wait_while_it_runs(run, lambda: self.sizes_of(run, 0) == [2])
        self.list("localhost:0")
        self.wait_while_it_runs(run, lambda: "no slot is left on this host" in run.output())
        self.list("localhost:1")
        self.wait_while_it_runs(run, lambda: len(self.pids_of(run, 0)) == 2 and self.sizes_of(run, 0)[-1] == 1)
        self.end()
        self.assertEqual(run.exit_code(PATIENCE_S), 0, run.output())

    def test_who_does_not_take_part_is_not_ended(self):
        run = self.run_listed("--elastic-timeout", "2", harness.PYTHON, "-c", "import time; print('up', flush=True); time.sleep(1000)")
        self.wait_while_it_runs(run, lambda: run.output().count("up") == 2)
        self.list("localhost:0")
        self.wait_while_it_runs(run, lambda: "this host has 0 slots now" in run.output())
        self.stop(run)

    def test_a_script_that_fails_or_prints_rubbish_is_named_and_its_last_answer_stays(self):
        script = os.path.join(self.folder, "script")
        with open(script, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\n. {self.folder}/does\n')
        os.chmod(script, 0o755)
        self.do("echo localhost:2")
        run = self.run_listed(harness.PYTHON, "-c", "import time; print('up', flush=True); time.sleep(1000)", command=script)
        self.wait_while_it_runs(run, lambda: run.output().count("up") == 2)
        for what, text in (("exit 7", "it exited with status 7"), ("echo localhost:many", 'it printed "localhost:many"'),
                           ("echo a b:3", 'it printed "a b:3"'), ("kill -9 $$", "it exited with status 137")):
            self.do(what)
            self.wait_while_it_runs(run, lambda text=text: text in run.output())
        self.assertEqual(run.output().count("it exited with status 7"), 1, "it is said once")
        self.assertIn("going on with 2 slots here", run.output())
        self.do("echo localhost:3")
        self.wait_while_it_runs(run, lambda: run.output().count("up") == 3)
        self.stop(run)

    def stop(self, run):
        run.send(signal.SIGTERM)
        self.assertEqual(run.exit_code(PATIENCE_S), 128 + signal.SIGTERM, run.output())

    def do(self, what):
        with open(os.path.join(self.folder, "does.new"), "w", encoding="utf-8") as file:
            file.write(what + "\n")
        os.replace(os.path.join(self.folder, "does.new"), os.path.join(self.folder, "does"))

    def test_a_script_that_gives_this_host_nothing_ends_the_wait_with_a_line(self):
        self.list("other.example.org:4")
        run = self.run_listed("--start-timeout", "2", "true")
        self.assertEqual(run.exit_code(), 1)
        self.assertIn("did not give this host 1 slot within 2 s (--start-timeout), but 0", run.output())
        run = self.run_listed("--start-timeout", "2", "true", command="exit 3")
        self.assertEqual(run.exit_code(), 1)
        self.assertIn("gave no answer within 2 s (--start-timeout): it exited with status 3", run.output())
        self.list("localhost:1")
        run = self.run_listed("--start-timeout", "2", "-np", "2", "true")
        self.assertEqual(run.exit_code(), 1)
        self.assertIn("did not give this host 2 slots within 2 s (--start-timeout), but 1", run.output())


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
        self.assert_refused("--host-discovery-script is for elastic jobs", "--host-discovery-script", "true")
        self.assert_refused("--virtual-nodes and -H cannot go with it", "--host-discovery-script", "true", "--min-np", "1", "--virtual-nodes", "2")


if __name__ == "__main__":
    harness.main()
