#!/usr/bin/python3
"""Tests what the others see when a rank, a daemon or a launcher ends, and that nothing of it is left."""

import os
import re
import signal
import time

import harness
from harness import SANITIZED, SLOWNESS, IntegrationTest, by_rank, rank, read_text, wait_until

LOOP = rank("init", "loop:200000")
# These are deadlines of the contract, from the death to the error in the other ranks' hands.
RANK_LOST_S = 2.0 * SLOWNESS
NODE_LOST_S = 5.0 * SLOWNESS


class Death(IntegrationTest):

    def loop_on(self, daemons, ranks_per_node, command=None):
        """Starts a job, and waits until all ranks are in the middle of their all-reduces."""
        job = self.start_job(daemons, ranks_per_node, command or LOOP)
        for number in range(sum(ranks_per_node)):
            job.wait_for(number, "^looping")
        return job

    def assert_error(self, job, number, pattern, since_s, within_s):
        """Checks that a rank's loop has ended with an error, soon enough, and that its inputs are what they were."""
        error = job.wait_for(number, r"^error loop:\S+ (\S+) at (\S+): (.*)$")
        self.assertRegex(f"{error.group(1)} {error.group(3)}", pattern, f"rank {number}")
        self.assertLess(float(error.group(2)) - since_s, within_s, f"rank {number}: {error.group(0)}")
        job.wait_for(number, "^inputs intact")


class RankDeathTest(Death):

    def test_kill_of_a_rank_names_it_and_frees_what_it_held(self):
        daemons = self.start_daemons("alpha", "beta")
        self.assert_job_runs(daemons, [2, 2])  # makes a daemon allocate what it keeps
        wait_until(lambda: all(one.metric("rueda_jobs") == 0 for one in daemons))
        held = [one.held_at_rest() for one in daemons]
        resident = [one.resident_bytes() for one in daemons]
        shared_memory = sorted(os.listdir("/dev/shm"))
        for victim in (3, 0):
            job = self.loop_on(daemons, [2, 2])
            self.assertGreater(daemons[0].held()["memfds"], 0)
            killed_s = time.monotonic()
            os.kill(job.pid_of(victim), signal.SIGKILL)
            for number in range(4):
                if number != victim:
                    self.assert_error(job, number, rf"RUEDA_ERR_RANK_LOST .*\brank {victim}\b", killed_s,
                                      RANK_LOST_S)
            self.assertNotIn(0, job.exit_codes(), job.output())
            self.assertRegex(job.output(), rf"ruedarun: .*rank {victim} .*killed by signal 9")
            for i, daemon in enumerate(daemons):
                self.assertTrue(daemon.is_running(), daemon.output())
                wait_until(lambda d=daemon: d.metric("rueda_jobs") == 0, 10)
                for kind, count in daemon.held_at_rest().items():
                    self.assertLessEqual(count, held[i][kind], f"{kind} of daemon {daemon.node_id}")
                for gauge in ("rueda_clients", "rueda_arena_bytes", "rueda_staging_bytes"):
                    self.assertEqual(daemon.metric(gauge), 0, gauge)
                if not SANITIZED:  # sanitizers' allocators give nothing back
                    self.assertLess(daemon.resident_bytes() - resident[i], 8 << 20)
            self.assertEqual(sorted(os.listdir("/dev/shm")), shared_memory)
            self.assert_job_runs(daemons, [2, 2])

    def test_a_rank_is_named_whose_launcher_has_gone_when_its_daemon_wakes_up(self):
        daemons = self.start_daemons("alpha", "beta", arguments=["--failure-timeout", "30"])
        job = self.loop_on(daemons, [1, 1])
        daemons[1].send(signal.SIGSTOP)
        try:
            os.kill(job.pid_of(1), signal.SIGKILL)
            job.launchers[1].exit_code()
        finally:
            daemons[1].send(signal.SIGCONT)
        error = job.wait_for(0, r"^error loop:\S+ (\S+) at \S+: (.*)$")
        self.assertRegex(f"{error.group(1)} {error.group(2)}", r"RUEDA_ERR_RANK_LOST .*\brank 1\b")
        self.assertNotIn(0, job.exit_codes(), job.output())

    def test_a_rank_that_ends_before_its_node_has_joined_is_named_by_the_others(self):
        daemons = self.start_daemons("alpha", "beta")
        job = self.start_job(daemons, [1, 2], by_rank({1: rank("exit:3"), 2: rank("pause")}, rank("init")))
        error = job.wait_for(0, r"^error init (\S+) at \S+: (.*)$")
        self.assertRegex(f"{error.group(1)} {error.group(2)}",
                         r"RUEDA_ERR_RANK_LOST .*\brank 1 .*\bbeta exited with status 3")
        job.exit_codes()

    def test_who_comes_when_the_job_is_over_and_gone_hears_who_died(self):
        daemons = self.start_daemons("alpha", "beta")
        job = self.start_job(daemons, [1, 1], by_rank({0: rank("exit:3")}, rank("pause", "init")))
        job.wait_for(1, "^pausing")
        self.assertEqual(job.launchers[0].exit_code(), 3, job.output())
        wait_until(lambda: daemons[0].metric("rueda_jobs") == 0)
        os.kill(job.pid_of(1), signal.SIGUSR1)
        error = job.wait_for(1, r"^error init (\S+) at \S+: (.*)$")
        self.assertRegex(f"{error.group(1)} {error.group(2)}",
                         r"RUEDA_ERR_RANK_LOST .*\brank 0 .*\balpha exited with status 3")
        self.assertGreaterEqual(daemons[0].metric("rueda_late_joins_total"), 1)
        job.exit_codes()

    def test_exit_in_the_middle_of_an_operation(self):
        daemons = self.start_daemons("alpha", "beta")
        leaver = rank("init", "steps:6:1000", "submit:alone:200000", "exit:0")
        others = rank("init", "steps:6:1000", "loop:200000")
        job = self.start_job(daemons, [1, 2], by_rank({1: leaver}, others))
        for number in (0, 2):
            error = job.wait_for(number, r"^error loop:\S+ (\S+) at \S+: (.*)$")
            self.assertEqual(error.group(1), "RUEDA_ERR_RANK_LOST", error.group(0))
            self.assertRegex(error.group(2), r"\brank 1\b")
        self.assertNotEqual(job.exit_codes(), [0, 0])
        self.assert_job_runs(daemons, [1, 2])

    def test_a_rank_that_leaves_early_is_named_by_the_others(self):
        daemons = self.start_daemons("alpha", "beta")
        leaver = rank("init", "steps:6:1000", "shutdown")
        # A rank that is told stays: its own end would be the next cause for a rank that is not told yet.
        others = rank("init", "steps:6:1000", "loop:1000", "pause")
        job = self.start_job(daemons, [2, 2], by_rank({2: leaver}, others))
        for number in (0, 1, 3):
            error = job.wait_for(number, r"^error loop:\S+ (\S+) at \S+: (.*)$")
            self.assertRegex(error.group(2), r"\brank 2\b.*", error.group(0))
        job.wait_for(2, "^ok shutdown")
        for number in (0, 1, 3):
            os.kill(job.pid_of(number), signal.SIGUSR1)
        job.exit_codes()

    def test_the_ranks_that_never_came_are_named(self):
        job = self.ruedarun("-np", "3", "--virtual-nodes", "2", "--daemon-arg=--start-timeout-ms=1500",
                            "--start-timeout", "3", "--grace", "1",
                            *by_rank({1: ["/bin/sleep", "100"]}, rank("init")))
        self.assertNotEqual(job.exit_code(), 0)
        for number in (0, 2):
            self.assertRegex(job.output(), rf"\[{number}\] error init RUEDA_ERR_\w+ at .*\brank 1\b")
        self.assertNotRegex(job.output(), r"error init.*\branks? [02]\b")


class DaemonDeathTest(Death):

    def test_kill_of_a_daemon_names_the_node(self):
        # The victim is or is not the job's coordinator; daemons have one thread, or data loops of their own.
        for victim, loops in ((0, 0), (1, 0), (0, 3), (1, 1)):
            with self.subTest(victim=victim, loops=loops):
                daemons = self.start_daemons(f"left{victim}{loops}", f"right{victim}{loops}",
                                             arguments=[f"--data-loops={loops}"])
                job = self.loop_on(daemons, [2, 2])
                dead, alive = daemons[victim], daemons[1 - victim]
                killed_s = time.monotonic()
                dead.send(signal.SIGKILL)
                for number in (2, 3) if victim == 0 else (0, 1):
                    self.assert_error(job, number, rf"RUEDA_ERR_NODE_LOST .*\b{dead.node_id}\b", killed_s, NODE_LOST_S)
                for number in (0, 1) if victim == 0 else (2, 3):
                    self.assert_error(job, number, r"RUEDA_ERR_DAEMON_LOST .*daemon", killed_s, NODE_LOST_S)
                self.assertNotIn(0, job.exit_codes(), job.output())
                self.assertTrue(alive.is_running(), alive.output())
                self.assert_job_runs([alive], [2])
                os.unlink(dead.socket)

    def test_stop_of_a_daemon_says_so(self):
        for victim in (0, 1):
            with self.subTest(victim=victim):
                daemons = self.start_daemons(f"left{victim}", f"right{victim}")
                job = self.loop_on(daemons, [2, 2])
                stopped = daemons[victim]
                stopped_s = time.monotonic()
                stopped.send(signal.SIGTERM)
                for number in range(4):
                    self.assert_error(job, number, rf"\b{stopped.node_id}\b was stopped", stopped_s, NODE_LOST_S)
                self.assertEqual(stopped.exit_code(), 0, stopped.output())
                self.assertFalse(os.path.exists(stopped.socket))
                job.exit_codes()

    def test_a_daemon_that_is_silent_is_lost_within_the_timeout(self):
        timeout_ms = 1500 * (2 if SANITIZED else 1)
        for victim in (0, 1):
            with self.subTest(victim=victim):
                daemons = self.start_daemons(f"left{victim}", f"right{victim}",
                                             arguments=["--failure-timeout", str(timeout_ms / 1000)])
                job = self.loop_on(daemons, [2, 2])
                frozen = daemons[victim]
                frozen_s = time.monotonic()
                frozen.send(signal.SIGSTOP)
                try:
                    for number in (2, 3) if victim == 0 else (0, 1):
                        self.assert_error(job, number, rf"\b{frozen.node_id}\b", frozen_s,
                                          (timeout_ms / 1000 + 2) * SLOWNESS)
                finally:
                    frozen.send(signal.SIGCONT)
                self.assertNotIn(0, job.exit_codes(), job.output())
                self.assert_job_runs([daemons[1 - victim]], [2])

    def test_kill_of_a_private_daemon_ends_the_job(self):
        job = self.ruedarun("-np", "4", "--virtual-nodes", "2", *LOOP)
        job.wait_for(r"^\[\d\] looping", count=4)
        daemons = [pid for pid, line in self.processes() if line.startswith(harness.program("ruedad"))]
        self.assertEqual(len(daemons), 2)
        os.kill(daemons[0], signal.SIGKILL)
        self.assertNotEqual(job.exit_code(), 0)
        self.assertRegex(job.output(), rf"daemon of node node\d \(pid {daemons[0]}\) was killed by signal 9")


class LauncherDeathTest(Death):

    def folders(self):
        """Returns what a job could leave on the machine."""
        return {folder: sorted(name for name in os.listdir(folder) if "rueda" in name and "rueda-test-" not in name)
                for folder in ("/dev/shm", "/run", "/tmp")}

    def test_kill_of_ruedarun_leaves_nothing(self):
        before = self.folders()
        job = self.ruedarun("-np", "4", "--virtual-nodes", "2", *LOOP)
        job.wait_for(r"^\[\d\] looping", count=4)
        sockets = re.findall(r"@rueda-\S+", read_text("/proc/net/unix"))
        self.assertNotEqual(sockets, [])
        job.send(signal.SIGKILL)
        job.exit_code()
        self.assert_nothing_left()
        self.assertEqual(self.folders(), before)

    def test_interrupt_leaves_nothing(self):
        before = self.folders()
        job = self.ruedarun("-np", "4", "--virtual-nodes", "2", *LOOP)
        job.wait_for(r"^\[\d\] looping", count=4)
        job.send(signal.SIGINT)
        self.assertEqual(job.exit_code(), 128 + signal.SIGINT, job.output())
        self.assert_nothing_left()
        self.assertEqual(self.folders(), before)

    def test_kill_of_one_launcher_ends_its_job_and_spares_the_daemons(self):
        daemons = self.start_daemons("alpha", "beta")
        job = self.loop_on(daemons, [2, 2])
        killed_s = time.monotonic()
        job.launchers[1].send(signal.SIGKILL)
        for number in (0, 1):
            self.assert_error(job, number, r"\b(beta|rank [23])\b", killed_s, NODE_LOST_S)
        job.exit_codes()
        self.assert_nothing_left(keep=daemons)
        self.assert_job_runs(daemons, [2, 2])


if __name__ == "__main__":
    harness.main()
