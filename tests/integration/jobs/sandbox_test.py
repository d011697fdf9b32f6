#!/usr/bin/python3
"""Tests the daemon in its sandbox: jobs run and certificates are replaced there, and it says what is in force."""

import json
import os
import re
import shutil
import ssl
import subprocess
import unittest

import harness
from harness import IntegrationTest, program, rank, wait_until

LOOKS_AFTER_S = 30  # a daemon looks at its files every second, and gRPC every five
WITHOUT_LANDLOCK = os.path.join(harness.SUPPORT, "without_landlock.py")


def shows(pid, name):
    """Returns a field of /proc/PID/status, or None where the kernel does not show it."""
    found = re.search(rf"(?m)^{name}:\s*(\S+)$", harness.read_text(f"/proc/{pid}/status"))
    return found and found.group(1)


class SandboxTest(IntegrationTest):

    def run_tool(self, *command):
        return subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=harness.PATIENCE_S, check=False)

    def status(self, daemon):
        run = self.run_tool(program("ruedactl"), "--socket", daemon.socket, "--json", "status")
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads(run.stdout)

    def in_force(self, daemon):
        return set(self.status(daemon).get("sandbox", []))

    def needs_both(self, daemon):
        missing = {"seccomp", "landlock"} - self.in_force(daemon)
        if missing:
            self.skipTest(f"this kernel, or this build, has no {', '.join(sorted(missing))}")

    def install(self, node_id, folder):
        """Puts a new certificate for a node into a folder."""
        authority, bundle = os.path.join(self.folder, "authority"), os.path.join(self.folder, f"bundle-{os.urandom(4).hex()}")
        commands = [["issue", "node", node_id, "--authority", authority, "--host", "127.0.0.1", "--out", bundle],
                    ["install", bundle, folder]]
        if not os.path.exists(authority):
            commands.insert(0, ["init", authority, "--trust-domain", "test.example"])
        for command in commands:
            run = self.run_tool(program("ruedactl"), "certs", *command)
            self.assertEqual(run.returncode, 0, run.stderr)

    def test_a_job_runs_and_certificates_are_replaced(self):
        folders = {node: os.path.join(self.folder, f"tls-{node}") for node in ("alpha", "beta")}
        for node, folder in folders.items():
            self.install(node, folder)
        daemons = [self.start_daemon(node, "--tls-dir", folder, "--sandbox", "auto") for node, folder in folders.items()]
        self.needs_both(daemons[0])
        for daemon in daemons:
            self.assertIn("sandbox: seccomp and Landlock", daemon.output())
            self.assertEqual(self.status(daemon).get("sandbox_trouble", ""), "")
            self.assertIn(shows(daemon.pid, "Seccomp"), ("2", None))
            self.assertIn(shows(daemon.pid, "NoNewPrivs"), ("1", None))
        ports = [("127.0.0.1", daemon.port(which)) for daemon in daemons for which in ("control", "http")]
        before = {port: ssl.get_server_certificate(port) for port in ports}
        job = self.start_job(daemons, [2, 2], rank("init", "steps:100000000:1000", "shutdown"))
        self.assertTrue(wait_until(lambda: all(self.status(daemon)["clients"] == 2 for daemon in daemons)), job.output())
        for node, folder in folders.items():
            self.install(node, folder)
        are_new = wait_until(lambda: all(ssl.get_server_certificate(port) != old for port, old in before.items()), LOOKS_AFTER_S)
        self.assertTrue(are_new)
        for launcher in job.launchers:
            self.assertTrue(launcher.is_running(), job.output())
            launcher.send(harness.signal.SIGINT)
        job.exit_codes()
        self.assert_job_runs(daemons, [2, 2])

    @unittest.skipUnless(shutil.which("strace"), "strace is not installed (package strace)")
    def test_nothing_that_a_daemon_does_is_refused(self):
        """A call that was forgotten fails, and much goes on as if nothing had happened: a doorbell that is not emptied."""
        calls = {node: os.path.join(self.folder, f"calls-{node}") for node in ("alpha", "beta")}
        for node in calls:
            self.install(node, os.path.join(self.folder, f"tls-{node}"))
        for kind, flags in (("tcp", ["--reduce-threads", "2", "--nodes", "gamma=localhost:1"]), ("grpc", ["--transport", "grpc"])):
            with self.subTest(kind=kind):
                # With -D the daemon, and not strace, is the child of this test.
                daemons = [self.start_daemon(node, "--tls-dir", os.path.join(self.folder, f"tls-{node}"), "--data-loops", "2", *flags,
                                             inside=["strace", "-D", "-f", "-qq", "-Z", "-o", path]) for node, path in calls.items()]
                self.needs_both(daemons[0])
                self.assert_job_runs(daemons, [2, 2])
                self.assert_job_runs(daemons[:1], [3])
                for daemon in daemons:
                    self.assertEqual(self.run_tool(program("ruedactl"), "--socket", daemon.socket, "doctor").returncode, 0)
                    daemon.send(harness.signal.SIGTERM)
                    self.assertEqual(daemon.exit_code(), 0, daemon.output())
                self.assert_nothing_left()  # strace has written what it has seen
                for path in calls.values():
                    refused = re.findall(r"(?m)^\d+ +(.*= -1 (?:EPERM|EACCES|ENOSYS) .*)$", harness.read_text(path))
                    self.assertEqual([line for line in refused if "clone3" not in line], [])

    def test_who_asks_is_told(self):
        daemon = self.start_daemon("alpha")
        parts = self.in_force(daemon)
        for part in ("seccomp", "landlock"):
            self.assertEqual(daemon.metric("rueda_sandbox", f'part="{part}"'), part in parts)
        table = self.run_tool(program("ruedactl"), "--socket", daemon.socket, "status").stdout
        self.assertRegex(table, rf"(?m)^sandbox +{', '.join(part for part in ('seccomp', 'landlock') if part in parts) or '-'}$")

    def test_yes_takes_a_kernel_that_has_both(self):
        self.needs_both(self.start_daemon("alpha"))
        beta = self.start_daemon("beta", "--sandbox", "yes")
        self.assertEqual(self.in_force(beta), {"seccomp", "landlock"})
        self.assert_job_runs([beta], [3])

    def test_no_is_none(self):
        daemon = self.start_daemon("alpha", "--sandbox", "no")
        self.assertEqual(self.in_force(daemon), set())
        self.assertEqual(daemon.metric("rueda_sandbox"), 0)
        self.assertIn(shows(daemon.pid, "Seccomp"), (shows("self", "Seccomp"), None))
        doctor = self.run_tool(program("ruedactl"), "--socket", daemon.socket, "doctor")
        self.assertEqual((doctor.returncode, doctor.stdout), (0, "nothing to recommend\n"), "it was meant to be so")

    @unittest.skipIf(harness.SANITIZED, "a sanitizer's daemon has no sandbox")
    def test_a_kernel_without_landlock(self):
        probe = self.run_tool(WITHOUT_LANDLOCK, "/bin/true")
        if probe.returncode != 0:
            self.skipTest(probe.stderr)
        refused = self.run_tool(WITHOUT_LANDLOCK, program("ruedad"), "--private", "--socket", os.path.join(self.folder, "s"),
                                "--sandbox", "yes")
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertRegex(refused.stderr, r"ruedad: --sandbox yes: the kernel has no Landlock.*lsm=landlock.*--sandbox auto")
        daemon = self.start_daemon("alpha", inside=[WITHOUT_LANDLOCK])
        self.assertEqual(self.in_force(daemon), {"seccomp"})
        self.assertIn("sandbox: seccomp; the kernel has no Landlock", daemon.output())
        self.assertEqual(daemon.metric("rueda_sandbox", 'part="landlock"'), 0)
        doctor = self.run_tool(program("ruedactl"), "--socket", daemon.socket, "doctor")
        self.assertEqual(doctor.returncode, 1, doctor.stdout)
        self.assertRegex(doctor.stdout, "sandbox is not whole: the kernel has no Landlock")
        self.assert_job_runs([daemon], [2])


if __name__ == "__main__":
    harness.main()
