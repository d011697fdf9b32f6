#!/usr/bin/python3
"""Tests several launchers that meet, and several jobs on the same daemons."""

import json
import os
import shutil
import signal
import unittest

import harness
from harness import IntegrationTest, free_port, rank, wait_until


class RendezvousTest(IntegrationTest):

    def launch(self, endpoint, node_rank, count, command, *extra):
        return self.ruedarun("-np", str(count), "--nnodes", "2", "--node-rank", str(node_rank), "--rdzv-endpoint",
                             endpoint, *extra, *command)

    def test_two_launchers_with_private_daemons(self):
        path = os.path.join(self.folder, "bench.json")
        command = [harness.program("rueda-bench"), "allreduce", "--sizes", "0,1e,4K,1M", "--dtype", "float32,int64",
                   "--iters", "2", "--json", path]
        endpoint = f"127.0.0.1:{free_port()}"
        # The launcher that is called comes last, so the other one has to wait for it.
        launchers = [self.launch(endpoint, 1, 1, command)]
        launchers.append(self.launch(endpoint, 0, 2, command))
        for launcher in launchers:
            self.assertEqual(launcher.exit_code(), 0, launcher.output())
        with open(path, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        self.assertEqual(len(rows), 8)
        for row in rows:
            self.assertEqual((row["wrong"], row["nranks"], row["nnodes"]), (0, 3, 2), row)

    def test_a_launcher_that_never_comes_is_named(self):
        launcher = self.launch(f"127.0.0.1:{free_port()}", 0, 1, ["true"], "--start-timeout", "1")
        self.assertEqual(launcher.exit_code(), 1)
        self.assertRegex(launcher.output(), r"node rank 1 of 2 did not come to 127\.0\.0\.1:\d+")

    def test_a_rank_that_fails_on_one_node_ends_both(self):
        endpoint = f"127.0.0.1:{free_port()}"
        command = harness.by_rank({2: rank("init", "steps:10:1000", "quit:7")}, rank("init", "loop:1000"))
        launchers = [self.launch(endpoint, 0, 2, command), self.launch(endpoint, 1, 2, command)]
        codes = [launcher.exit_code() for launcher in launchers]
        self.assertEqual(codes[1], 7, launchers[1].output())
        self.assertNotEqual(codes[0], 0, launchers[0].output())
        self.assertRegex(launchers[1].output(), r"rank 2 \(pid \d+\) on node node1 exited with status 7")


class HealthyJobsTest(IntegrationTest):

    # Neighbours that began first were once counted and logged as strangers on the data port.
    def test_nobody_is_rejected(self):
        daemons = self.start_daemons("alpha", "beta", "gamma")
        for _ in range(5):
            self.assert_job_runs(daemons, [1, 2, 1])
        for daemon in daemons:
            self.assertEqual(daemon.metric("rueda_rejected_connections_total"), 0, daemon.output())
            self.assertNotIn("closed a connection", daemon.output())


@unittest.skipUnless(os.geteuid() == 0, "only root becomes other users")
class UsersTest(IntegrationTest):

    def ruedactl_as(self, user, group, *arguments):
        """Returns what ruedactl prints to a user who is in one group, and nobody else."""
        program = os.path.join(self.folder, "ruedactl")  # Others need not be able to reach the build.
        if not os.path.exists(program):
            shutil.copy(harness.program("ruedactl"), program)
            os.chmod(self.folder, 0o755)
        run = self.start(["setpriv", "--reuid", str(user), "--regid", "54321", "--groups", str(group), program, *arguments])
        run.exit_code()
        return run.output()

    def test_users_see_their_own_jobs_and_operators_all(self):
        daemon = self.start_daemon("alpha", "--admin-group", "54400")
        job = self.start_job([daemon], [2], rank("init", "loop:50000"))
        job.wait_for(0, "^looping")
        of_user = self.ruedactl_as(54321, 54321, "--socket", daemon.socket, "jobs")
        self.assertEqual(of_user, "no jobs of this user\n1 job of other users: root sees all, and so do members of --admin-group")
        for user, group in ((54321, 54400), (0, 54321)):
            self.assertIn(" running ", self.ruedactl_as(user, group, "--socket", daemon.socket, "jobs"))
        refused = self.ruedactl_as(54321, 54321, "--socket", daemon.socket, "probe")
        self.assertIn("root may ask for it over a daemon's unix socket without a name, the user that the daemon runs as, and members of --admin-group", refused)
        self.assertIn("--nodes of node alpha has 0", self.ruedactl_as(54321, 54400, "--socket", daemon.socket, "probe"))
        os.kill(job.pid_of(0), signal.SIGKILL)
        job.exit_codes()


class TwoJobsTest(IntegrationTest):

    def test_one_is_killed_and_the_other_goes_on(self):
        daemons = self.start_daemons("alpha", "beta")
        endless = rank("init", "loop:50000")
        # The other job is told when to end: SIGUSR1 in its last action but one would be too early.
        survivor = self.start_job(daemons, [2, 2], rank("init", "steps:10:50000", "pause", "steps:200:50000", "pause",
                                                        "steps:10:50000", "shutdown"))
        victim = self.start_job(daemons, [2, 2], endless)
        for number in range(4):
            victim.wait_for(number, "^looping")
            survivor.wait_for(number, "^pausing")
        for daemon in daemons:
            self.assertEqual((daemon.metric("rueda_jobs"), daemon.metric("rueda_clients")), (2, 4))
        # Both jobs run at once, and the kill comes in the middle of them.
        for number in range(4):
            os.kill(survivor.pid_of(number), signal.SIGUSR1)
        os.kill(victim.pid_of(3), signal.SIGKILL)
        for number in range(3):
            victim.wait_for(number, r"^error loop:\S+ RUEDA_ERR_RANK_LOST at \S+: .*\brank 3\b")
        self.assertNotIn(0, victim.exit_codes())
        for number in range(4):
            survivor.wait_for(number, "^ok steps:200:50000")
        wait_until(lambda: all(sum(line == "pausing" for line in survivor.lines_of(n)) == 2 for n in range(4)))
        for daemon in daemons:
            self.assertTrue(wait_until(lambda d=daemon: d.metric("rueda_jobs") == 1, 10))
        for number in range(4):
            os.kill(survivor.pid_of(number), signal.SIGUSR1)
        self.assertEqual(survivor.exit_codes(), [0, 0], survivor.output())
        for number in range(4):
            self.assertFalse([line for line in survivor.lines_of(number) if line.startswith("error")])

    def test_the_same_names_in_both(self):
        """Tensors of one job never meet those of another, whatever they are called."""
        daemons = self.start_daemons("alpha", "beta")
        jobs = [self.start_job(daemons, counts, rank("init", f"steps:200:{size}", "shutdown"))
                for counts, size in (([1, 2], 3000), ([2, 1], 70000), ([1, 1], 3000))]
        for job in jobs:
            self.assertEqual(job.exit_codes(), [0, 0], job.output())


class CoordinationTest(IntegrationTest):

    def mode_of_job(self, daemon):
        run = self.start([harness.program("ruedactl"), "--socket", daemon.socket, "--json", "jobs"])
        self.assertEqual(run.exit_code(), 0, run.output())
        [job] = json.loads(run.output())["jobs"]
        return job["coordination"]

    def test_the_launchers_word_goes_before_the_daemons(self):
        daemons = self.start_daemons("alpha", "beta", arguments=["--coordination", "cached"])
        for extra, variables, mode in (((), {}, "cached"), ((), {"RUEDA_COORDINATION": "negotiate"}, "negotiate"),
                                       (("--coordination", "nonblocking"), {"RUEDA_COORDINATION": "cached"},
                                        "nonblocking")):
            job = self.start_job(daemons, [1, 1], rank("init", "steps:10:1000", "pause", "shutdown"), extra,
                                 extra_env=variables)
            for number in range(2):
                job.wait_for(number, "^pausing")
            self.assertEqual([self.mode_of_job(daemon) for daemon in daemons], [mode] * 2)
            for number in range(2):
                os.kill(job.pid_of(number), signal.SIGUSR1)
            self.assertEqual(job.exit_codes(), [0, 0], job.output())

    def test_nodes_that_were_told_different_modes(self):
        daemons = [self.start_daemon("alpha", "--coordination", "locked"),
                   self.start_daemon("beta", "--coordination", "negotiate")]
        job = self.start_job(daemons, [1, 1], rank("init"))
        self.assertNotIn(0, job.exit_codes())
        for number in range(2):
            job.wait_for(number, r'RUEDA_ERR_MISMATCH at \S+: (job \S+ is over: )?job \S+ has for '
                                 '--coordination locked on node alpha and negotiate on node beta')

    def test_a_mode_that_is_not_there(self):
        launcher = self.ruedarun("--virtual-nodes", "1", "--coordination", "telepathy", "true")
        self.assertNotEqual(launcher.exit_code(), 0)
        self.assertRegex(launcher.output(), 'there is no coordination "telepathy"; the modes are negotiate, cached, ')


if __name__ == "__main__":
    harness.main()
