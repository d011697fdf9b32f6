#!/usr/bin/python3
"""Tests strangers at a daemon's ports, and readers that have stopped: jobs start and go on, health is answered, nothing grows."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import time

import harness
from harness import IntegrationTest, program, rank, read_text, wait_until

MOST_GROWTH = 50 << 20
F_SETPIPE_SZ = 1031  # Python 3.10 has a name for it


class Strangers(IntegrationTest):

    def attack(self, how, daemon, *more):
        started = self.start([os.path.join(harness.BUILD, "bin", "integration_stranger"), how,
                              daemon.addresses["control"], *more])
        if how != "hello":
            started.wait_for("^begun$")
        return started

    def end(self, *attackers):
        for one in attackers:
            one.send(signal.SIGTERM)
        for one in attackers:
            self.assertEqual(one.exit_code(), 0, one.output())
            self.assertGreater(int(one.wait_for(r"^done (\d+)$")[0].group(1)), 0)

    def ruedactl(self, *arguments):
        run = subprocess.run([program("ruedactl"), *arguments], env=self.env, capture_output=True, text=True,
                             timeout=harness.PATIENCE_S, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout


class ControlPortTest(Strangers):

    def test_a_job_starts_while_strangers_open_links_and_flood_one(self):
        daemons = alpha, beta = self.start_daemons("alpha", "beta")
        self.assert_job_runs(daemons, [1, 1])
        before = alpha.resident_bytes()
        attackers = [self.attack("links", alpha, "0"), self.attack("messages", alpha)]
        self.assertTrue(wait_until(lambda: alpha.metric("rueda_strangers_sent_away_total") > 600))
        self.assertTrue(wait_until(lambda: alpha.metric("rueda_unwanted_messages_total") > 0))
        self.assert_job_runs(daemons, [1, 1])
        self.assertEqual(alpha.get("/healthz")[0], 200)
        peers = json.loads(self.ruedactl("--address", alpha.addresses["control"], "--json", "peers"))
        self.assertNotIn("xx", json.dumps(peers))
        self.assertLessEqual(len(peers.get("peers", [])), 2, peers)
        self.assertLess(len(alpha.get("/metrics")[1]), 200_000)
        self.assertLess(alpha.resident_bytes() - before, MOST_GROWTH)
        self.end(*attackers)
        self.assert_job_runs(daemons, [1, 1])
        self.assertLess(len(alpha.lines), 500, "strangers fill the log")
        self.assertTrue(beta.is_running())

    def test_large_messages_are_not_kept(self):
        [alpha] = self.start_daemons("alpha")
        self.assert_job_runs([alpha], [1])
        before = alpha.resident_bytes()
        attackers = [self.attack("large", alpha), self.attack("links", alpha, str(1 << 20))]
        most = 0
        deadline_s = time.monotonic() + 2
        while time.monotonic() < deadline_s:
            most = max(most, alpha.resident_bytes() - before)
        self.assert_job_runs([alpha], [1])
        self.end(*attackers)
        self.assertLess(max(most, alpha.resident_bytes() - before), MOST_GROWTH)

    def test_a_name_forges_no_line_of_the_log(self):
        [alpha] = self.start_daemons("alpha")
        stranger = self.attack("hello", alpha, "a\n2026-11-26 00:00:00.000 error job x is over: \x1b[2J")
        stranger.wait_for("^ended$")
        alpha.wait_for("closed the control connection of .*names no node")
        self.assertNotRegex(alpha.output(), "(?m)^2026-11-26 00:00:00.000 error|\x1b")


class DescriptorsTest(Strangers):

    def test_every_port_answers_again_when_descriptors_are_back(self):
        # The number is enough for a job, and small enough to be exhausted.
        alpha = self.start_daemon("alpha", inside=("prlimit", "--nofile=100:100"))
        beta = self.start_daemon("beta")
        self.assert_job_runs([alpha, beta], [1, 1])
        taken = []

        def exhausted():
            return alpha.held()["fds"] >= 99

        try:
            for which in ("control", "data", "http"):
                for _ in range(120):
                    taken.append(socket.create_connection(("127.0.0.1", alpha.port(which))))
            for _ in range(120):
                one = socket.socket(socket.AF_UNIX)
                one.setblocking(False)
                taken.append(one)
                try:
                    one.connect(alpha.socket)
                except BlockingIOError:
                    break
            wait_until(exhausted, 2)
            print("descriptors held under attack:", alpha.held()["fds"], flush=True)
            self.assertTrue(alpha.is_running())
        finally:
            for one in taken:
                one.close()

        # What is closed here counts until the daemon has seen it go.
        def answers(*place):
            run = subprocess.run([program("ruedactl"), *place, "status"], env=self.env, capture_output=True, text=True, check=False)
            return "alpha" in run.stdout

        self.assertTrue(wait_until(lambda: answers("--address", alpha.addresses["control"]), 10))
        self.assertTrue(wait_until(lambda: answers("--socket", alpha.socket), 10))
        self.assertEqual(alpha.get("/healthz")[0], 200)
        self.assert_job_runs([alpha, beta], [1, 1])

    def test_the_soft_limit_is_raised_to_the_hard_one(self):
        alpha = self.start_daemon("alpha", inside=("prlimit", "--nofile=200:777"))
        self.assertRegex(read_text(f"/proc/{alpha.pid}/limits"), r"(?m)^Max open files +777 +777 ")


class HttpTest(Strangers):

    def test_health_is_answered_while_slow_connections_take_all_places(self):
        [alpha] = self.start_daemons("alpha")
        slow = []
        for number in range(300):
            one = socket.create_connection(("127.0.0.1", alpha.port("http")))
            one.sendall(b"GET /healthz HTTP/1.1\r\nX: " if number % 2 else b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            slow.append(one)
            if number % 50 == 49:
                self.assertEqual(alpha.get("/healthz")[0], 200)
        for one in slow:
            one.close()


class StandstillTest(Strangers):

    def test_a_daemon_whose_log_nobody_reads_goes_on(self):
        read_end, write_end = os.pipe()
        fcntl.fcntl(write_end, F_SETPIPE_SZ, 4096)
        ready, say_ready = os.pipe()
        path = os.path.join(self.folder, "alpha.sock")
        daemon = subprocess.Popen([program("ruedad"), "--private", "--node-id", "alpha", "--socket", path,
                                   "--log-level", "debug", "--ready-fd", str(say_ready)],
                                  env=self.env, stderr=write_end, pass_fds=[say_ready])
        os.close(write_end)
        os.close(say_ready)
        try:
            with os.fdopen(ready) as line:
                http = json.loads(line.readline())["http"]
            for _ in range(30):
                job = self.ruedarun("-np", "1", "--socket", path, "true")
                job.exit_code()
            with socket.create_connection(("127.0.0.1", int(http.rsplit(":", 1)[1]))) as asks:
                asks.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                self.assertIn(b" 200 ", asks.recv(100))
        finally:
            daemon.send_signal(signal.SIGTERM)
            with os.fdopen(read_end, "rb") as log:
                said = log.read().decode()
            self.assertEqual(daemon.wait(harness.PATIENCE_S), 0)
        self.assertGreater(len(said), 4096, "more than the pipe had room for")
        self.assertRegex(said, "node alpha stopped")

    def test_a_job_all_of_whose_processes_are_stopped_for_a_while_goes_on(self):
        daemons = self.start_daemons("alpha", "beta", arguments=("--failure-timeout", "1"))
        job = self.start_job(daemons, [1, 1], rank("init", "steps:3:1000", "pause", "steps:3:1000", "shutdown"))
        for number in range(2):
            job.wait_for(number, "^pausing")
        stopped = [pid for pid, _ in self.processes()]
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in stopped:
                os.kill(pid, number)
            time.sleep(3 if number == signal.SIGSTOP else 0)  # stands for docker pause
        for number in range(2):
            os.kill(job.pid_of(number), signal.SIGUSR1)
        self.assertEqual(job.exit_codes(), [0, 0], job.output())
        daemons[0].wait_for("this daemon did not run for")


if __name__ == "__main__":
    harness.main()
