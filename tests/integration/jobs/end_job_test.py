#!/usr/bin/python3
"""Tests that an operator, and a job's owner, end a job on all its nodes, for good (ruedactl end)."""

import json
import os
import shutil
import signal
import time
import unittest

import harness
from harness import PATIENCE_S, SLOWNESS, IntegrationTest, by_rank, rank, wait_until

ENDED = 143  # The exit code of ruedarun that docs/operations.md has for it.
TOLD_S = 2.0 * SLOWNESS


class EndJob(IntegrationTest):

    def ruedactl(self, daemon, *arguments):
        """Returns the exit code, and what was printed."""
        run = self.start([harness.program("ruedactl"), "--socket", daemon.socket, *arguments])
        return run.exit_code(), run.output()

    def start_and_wait(self, daemons, ranks_per_node, said, command, *flags):
        """Returns a job all of whose ranks have said something, and its id."""
        job = self.start_job(daemons, ranks_per_node, command, extra=flags)
        for number in range(sum(ranks_per_node)):
            job.wait_for(number, said)
        jobs = json.loads(self.ruedactl(daemons[0], "--json", "jobs")[1])["jobs"]
        self.assertEqual(len(jobs), 1, jobs)
        return job, jobs[0]["job_id"]

    def assert_ended(self, job, daemons, text):
        """Checks that all launchers end with the code and the reason, and that daemons have the job no more."""
        self.assertEqual(job.exit_codes(), [ENDED] * len(daemons), job.output())
        for launcher in job.launchers:
            self.assertRegex(launcher.output(), rf"ruedarun: the daemon of node \w+ reports: {text}; ending the job", job.output())
        for daemon in daemons:
            self.assertTrue(wait_until(lambda d=daemon: d.metric("rueda_jobs") == 0, PATIENCE_S), daemon.output())

    def test_a_job_is_ended_on_all_nodes_from_any_of_them(self):
        daemons = self.start_daemons("alpha", "beta")
        for at in (1, 0):
            with self.subTest(at=at):
                job, name = self.start_and_wait(daemons, [1, 2], "^looping", rank("init", "loop:50000"))
                ended_s = time.monotonic()
                text = f"the job was ended by user {os.geteuid()} on node {daemons[at].node_id}: maintenance\\\\ntonight"
                code, said = self.ruedactl(daemons[at], "end", name, "--reason", "maintenance\ntonight")
                self.assertEqual(code, 0, said)
                self.assertRegex(said, rf"^job {name} of 2 nodes is over: {text}$")
                for number in range(3):
                    error = job.wait_for(number, r"^error loop:\S+ (\S+) at (\S+): (.*)$")
                    self.assertRegex(f"{error.group(1)} {error.group(3)}", f"^RUEDA_ERR_SHUT_DOWN .*{text}")
                    self.assertLess(float(error.group(2)) - ended_s, TOLD_S)
                self.assert_ended(job, daemons, text)
        self.assert_job_runs(daemons, [1, 2])

    def test_a_job_is_ended_that_has_not_begun(self):
        daemons = self.start_daemons("alpha", "beta")
        job, name = self.start_and_wait(daemons, [1, 1], "^pid", by_rank({0: rank("pause")}, rank("init")), "--grace", "1")
        self.assertTrue(wait_until(lambda: daemons[1].metric("rueda_clients") == 1))
        self.assertEqual(self.ruedactl(daemons[1], "end", name)[0], 0)
        text = f"the job was ended by user {os.geteuid()} on node beta"
        job.wait_for(1, rf"^error init RUEDA_ERR_SHUT_DOWN at \S+: .*{text}$")
        self.assert_ended(job, daemons, text)

    def test_what_cannot_be_ended_is_said(self):
        daemons = self.start_daemons("alpha", "beta")
        code, said = self.ruedactl(daemons[0], "end", "nobodys")
        self.assertEqual(code, 1)
        self.assertIn("no job nobodys that you may end is registered on node alpha; ruedactl jobs says which are there", said)
        self.assertEqual(self.ruedactl(daemons[0], "end")[0], 2)
        # Its rank stays for as long as it may, so that the job is still there when it is ended once more.
        job, name = self.start_and_wait(daemons, [1, 1], "^looping", rank("init", "loop:50000", "pause"), "--grace", "60")
        self.assertEqual(self.ruedactl(daemons[0], "end", name, "--reason", "first")[0], 0)
        for daemon in daemons:
            self.assertTrue(wait_until(lambda d=daemon: " failed " in self.ruedactl(d, "jobs")[1], PATIENCE_S))
            code, said = self.ruedactl(daemon, "end", name, "--reason", "second")
            self.assertEqual(code, 1)
            self.assertRegex(said, rf"job {name} is over already: the job was ended by user \d+ on node alpha: first")
        for number in (0, 1):
            job.wait_for(number, "^pausing")
            os.kill(job.pid_of(number), signal.SIGUSR1)
        self.assert_ended(job, daemons, r"the job was ended by user \d+ on node alpha: first")

    # No daemon forms another generation, and no launcher starts a rank again.
    def test_the_end_of_an_elastic_job_is_final_on_all_nodes(self):
        daemons = self.start_daemons("alpha", "beta", "gamma")
        for at in (2, 0):
            with self.subTest(at=at):
                job, name = self.start_and_wait(daemons, [1, 1, 1], "^looping", rank("init", "loop:50000"), "--min-np", "1")
                code, said = self.ruedactl(daemons[at], "end", name)
                self.assertEqual(code, 0, said)
                text = f"the job was ended by user {os.geteuid()} on node {daemons[at].node_id}"
                self.assertRegex(said, rf"^job {name} of 3 nodes is over: {text}$")
                self.assert_ended(job, daemons, text)
                for number in range(3):
                    self.assertEqual(sum(line.startswith("pid ") for line in job.lines_of(number)), 1, job.output())
        for daemon in daemons:
            self.assertNotIn("generation 2", daemon.output())

    def test_an_elastic_job_is_ended_while_it_waits_for_its_next_generation(self):
        daemons = self.start_daemons("alpha", "beta", "gamma")
        # All three are needed, and who follows the dead one never comes.
        born = os.path.join(self.folder, "born")
        once = f"if [ -e {born} ]; then exec sleep 1000; fi; touch {born}; exec {' '.join(rank('init', 'loop:50000'))}"
        job, name = self.start_and_wait(daemons, [1, 1, 1], "^looping",
                                        by_rank({2: ["/bin/sh", "-c", once]}, rank("init", "loop:50000", "shutdown", "init")),
                                        "--min-np", "3", "--grace", "1")
        os.kill(job.pid_of(2), signal.SIGKILL)
        self.assertTrue(wait_until(lambda: all(" forming " in self.ruedactl(daemon, "jobs")[1] for daemon in daemons)))
        self.assertEqual(self.ruedactl(daemons[2], "end", name)[0], 0)
        text = f"the job was ended by user {os.geteuid()} on node gamma"
        for number in (0, 1):
            job.wait_for(number, rf"^error init RUEDA_ERR_SHUT_DOWN at \S+: .*{text}")
        self.assert_ended(job, daemons, text)


@unittest.skipUnless(os.geteuid() == 0, "only root becomes other users")
class OtherUsersTest(EndJob):

    def test_a_job_of_another_user_is_as_one_that_there_is_not(self):
        daemon = self.start_daemon("alpha")
        job, name = self.start_and_wait([daemon], [1], "^looping", rank("init", "loop:50000"))
        program = os.path.join(self.folder, "ruedactl")  # Others need not be able to reach the build.
        shutil.copy(harness.program("ruedactl"), program)
        for asked in (name, "nobodys"):
            stranger = self.start(["setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups",
                                   program, "--socket", daemon.socket, "end", asked])
            self.assertEqual(stranger.exit_code(), 1)
            self.assertIn(f"no job {asked} that you may end is registered on node alpha; ruedactl jobs says which are there",
                          stranger.output())
        self.assertIn(" running ", self.ruedactl(daemon, "jobs")[1])
        self.assertEqual(self.ruedactl(daemon, "end", name)[0], 0)
        self.assert_ended(job, [daemon], "the job was ended by user 0 on node alpha")


if __name__ == "__main__":
    harness.main()
