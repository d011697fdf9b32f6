#!/usr/bin/python3
"""Tests a daemon with several sockets: whoever connects to a named one is that principal, whatever the user, and no operator."""

import json
import os

import harness
from harness import IntegrationTest, rank

# A job that stays until its launcher is told to go.
STAYS = rank("init", "pause", "shutdown")


class PrincipalsTest(IntegrationTest):
    """All processes are the same user's, as all pods of a cluster may be root's."""

    def start_with_teams(self, *arguments):
        self.team = {}
        sockets = []
        for name in ("team-a", "team-b"):
            os.mkdir(os.path.join(self.folder, name))  # a folder of its own, as pods mount it
            self.team[name] = os.path.join(self.folder, name, "ruedad.sock")
            sockets.append(f"--socket={self.team[name]}={name}")
        self.daemon = self.start_daemon("alpha", *sockets, *arguments)

    def job(self, socket, command):
        return harness.Job([self.ruedarun("-np", "1", "--socket", socket, "--", *command)])

    def staying_job(self, socket):
        job = self.job(socket, STAYS)
        job.wait_for(0, "^pausing")
        return job

    def finish(self, *jobs):
        for job in jobs:
            os.kill(job.pid_of(0), 10)
            self.assertEqual(job.exit_codes(), [0], job.output())

    def ctl(self, socket, *words):
        asked = self.start([harness.program("ruedactl"), "--socket", socket, *words])
        return asked.exit_code(), asked.output()

    def jobs_seen(self, socket):
        code, output = self.ctl(socket, "--json", "jobs")
        self.assertEqual(code, 0, output)
        reply = json.loads(output)
        return len(reply.get("jobs", [])), int(reply.get("jobs_of_others", 0))

    def test_who_sees_what_and_who_is_an_operator(self):
        self.start_with_teams()
        jobs = [self.staying_job(socket) for socket in self.team.values()]
        for socket in self.team.values():
            self.assertEqual(self.jobs_seen(socket), (1, 1))
            code, output = self.ctl(socket, "probe")
            self.assertNotEqual(code, 0)
            self.assertIn("unix socket without a name", output)
        # The daemon's own user is an operator at the socket without a name.
        self.assertEqual(self.jobs_seen(self.daemon.socket), (2, 0))
        self.assertNotIn("unix socket without a name", self.ctl(self.daemon.socket, "probe")[1])
        self.finish(*jobs)

    def test_nobody_attaches_by_the_socket_of_another(self):
        self.start_with_teams()
        for socket, whose in ((self.team["team-b"], "principal team-b"), (self.daemon.socket, f"user {os.getuid()}")):
            job = self.job(self.team["team-a"], ["/usr/bin/env", f"RUEDA_SOCKET={socket}", *rank("init")])
            job.wait_for(0, rf"^error init RUEDA_ERR_\w+ at \S+: .*belongs to principal team-a, and process \d+ is {whose}'s")
            self.assertNotEqual(job.exit_codes(), [0])
        self.finish(self.staying_job(self.team["team-a"]))

    def test_a_quota_of_one_leaves_the_others_working(self):
        config = os.path.join(self.folder, "ruedad.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write("[quota]\njobs = 1\n\n[quota.team-b]\njobs = 2\n")
        self.start_with_teams("--config", config)
        jobs = [self.staying_job(self.team["team-a"])]
        refused = self.job(self.team["team-a"], rank("init", "shutdown"))
        self.assertNotEqual(refused.exit_codes(), [0])
        self.assertRegex(refused.output(), r"principal team-a has 1 jobs here and wants 1 more, and may have 1: wait for one to end, "
                         r"or ask an operator of this node \(root\) to raise --quota-jobs, or jobs under \[quota\] in ruedad\.toml")
        jobs += [self.staying_job(self.team["team-b"]) for _ in range(2)]
        refused = self.job(self.team["team-b"], rank("init", "shutdown"))
        self.assertNotEqual(refused.exit_codes(), [0])
        self.assertRegex(refused.output(), r"principal team-b has 2 jobs .* to raise jobs under \[quota\.team-b\] in ruedad\.toml")
        jobs.append(self.staying_job(self.daemon.socket))

        def value(metric, principal):
            return self.daemon.metric(metric, f'principal="{principal}"', 'resource="jobs"')

        for principal, has, refusals in (("team-a", 1, 1), ("team-b", 2, 1), (f"user {os.getuid()}", 1, 0)):
            self.assertEqual(value("rueda_principal_usage", principal), has)
            self.assertEqual(value("rueda_principal_limit", principal), has)
            self.assertEqual(value("rueda_quota_refusals_total", principal), refusals)
        self.finish(*jobs)

    def test_all_sockets_are_there_and_vanish(self):
        self.start_with_teams("--socket", f"@rueda-{self.run_id}=team-c")
        self.daemon.wait_for(rf"socket {self.team['team-a']}: who connects is principal team-a")
        self.assertEqual(self.jobs_seen(f"@rueda-{self.run_id}"), (0, 0))
        for socket in self.team.values():
            self.assertEqual(os.stat(socket).st_mode & 0o777, 0o666)
        self.stop_daemons()
        for socket in self.team.values():
            self.assertFalse(os.path.exists(socket), f"{socket} is left")


if __name__ == "__main__":
    harness.main()
