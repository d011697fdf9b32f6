#!/usr/bin/python3
"""Tests certificates of private daemons: launchers of several nodes make them by themselves, control links are in TLS, nobody else gets
in, and nothing of it is left."""

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import urllib.request

import harness
from harness import IntegrationTest, Job, program, rank, wait_until

# The beginning of HTTP/2, and what a server without TLS answers: its settings, a frame of type 4.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
SETTINGS = 4
LONG = rank("init", "steps:100000000:1000", "shutdown")
SHORT = rank("init", "steps:20:1000", "shutdown")


class PrivateTlsTest(IntegrationTest):

    def launch(self, endpoint, node, command, *flags, nnodes="2"):
        return self.ruedarun("-np", "1", "--nnodes", nnodes, "--node-rank", str(node), "--rdzv-endpoint", endpoint, "--verbose", *flags,
                             *command)

    def launch_two(self, command, *flags):
        endpoint = f"127.0.0.1:{harness.free_port()}"
        return Job([self.launch(endpoint, node, command, *flags) for node in (0, 1)])

    def start_long(self, *flags):
        """Starts a job of two nodes, and returns it when both daemons have each other."""
        job = self.launch_two(LONG, *flags)
        for node, launcher in enumerate(job.launchers):
            launcher.wait_for(rf"the daemon of node{node} serves")
        self.assertTrue(wait_until(lambda: all(self.is_running(launcher) for launcher in job.launchers)), job.output())
        return job

    def end(self, job):
        for launcher in job.launchers:
            launcher.send(signal.SIGINT)
        job.exit_codes()

    def addresses_of(self, launcher):
        """Returns the control and the HTTP address of a launcher's daemon."""
        return re.search(r"serves \(control (\S+), http (\S+)\)", launcher.output()).groups()

    def socket_of(self, launcher):
        """Returns the socket of a launcher's daemon."""
        for pid, line in self.processes():
            words = line.split()
            if "--socket" in words and harness.read_text(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()[1] == str(launcher.pid):
                return words[words.index("--socket") + 1]
        raise AssertionError("the launcher has no daemon")

    def ruedactl(self, *arguments):
        return subprocess.run([program("ruedactl"), *arguments], env=self.env, capture_output=True, text=True, timeout=harness.PATIENCE_S,
                              check=False)

    def status_of(self, launcher):
        return json.loads(self.ruedactl("--socket", self.socket_of(launcher), "--json", "status").stdout)

    def is_running(self, launcher):
        run = self.ruedactl("--socket", self.socket_of(launcher), "--json", "jobs")
        return run.returncode == 0 and any(job["state"] == "running" for job in json.loads(run.stdout)["jobs"])

    def answer_in_clear(self, address):
        """Returns whether the port speaks HTTP/2 without TLS."""
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=harness.PATIENCE_S) as stream:
            stream.sendall(PREFACE)
            try:
                head = stream.recv(9)
            except ConnectionError:
                return False
            return len(head) == 9 and head[3] == SETTINGS

    def answer_in_tls(self, address, bundle=None):
        """Returns whether the port speaks HTTP/2 with who shows this certificate, or none."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        if bundle:
            context.load_cert_chain(os.path.join(bundle, "tls.crt"), os.path.join(bundle, "tls.key"))
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), timeout=harness.PATIENCE_S) as plain:
                with context.wrap_socket(plain) as stream:
                    stream.sendall(PREFACE)
                    head = stream.recv(9)
                    return len(head) == 9 and head[3] == SETTINGS
        except (ssl.SSLError, ConnectionError):
            return False

    # --- Tests -----------------------------------------------------------------------------------

    def test_control_links_of_private_daemons_are_in_tls(self):
        job = self.start_long()
        for node, launcher in enumerate(job.launchers):
            status = self.status_of(launcher)
            self.assertEqual((status["protection"], status["data_protection"]), ("tls", "none"), status)
            self.assertRegex(status["identity"], rf"^spiffe://job-[0-9a-f]{{12}}/rueda/node/node{node}$")
            control, _ = self.addresses_of(launcher)
            self.assertFalse(self.answer_in_clear(control))
            self.assertEqual(self.ruedactl("--address", control, "status").returncode, 1)
        self.end(job)

    # What the test above looks for is there where there are no certificates.
    def test_without_certificates_the_port_answers_in_clear(self):
        job = self.start_long("--daemon-arg=--insecure")
        control, _ = self.addresses_of(job.launchers[0])
        self.assertTrue(self.answer_in_clear(control))
        self.assertEqual(self.status_of(job.launchers[0])["protection"], "nothing")
        self.end(job)

    def test_certificates_of_another_authority_are_refused(self):
        job = self.start_long()
        control, _ = self.addresses_of(job.launchers[0])
        domain = self.status_of(job.launchers[0])["identity"].split("/")[2]
        authority = os.path.join(self.folder, "authority")
        self.assertEqual(self.ruedactl("certs", "init", authority, "--trust-domain", domain).returncode, 0)
        for role, name in (("node", "node1"), ("operator", "ada")):
            bundle = os.path.join(self.folder, f"{role}.bundle")
            self.assertEqual(self.ruedactl("certs", "issue", role, name, "--authority", authority, "--out", bundle).returncode, 0)
            self.assertFalse(self.answer_in_tls(control, bundle))
        self.assertFalse(self.answer_in_tls(control))
        # A daemon with certificates answers one of its own authority, so that a refusal says something.
        os.chmod(os.path.join(self.folder, "node.bundle", "tls.key"), 0o600)
        own = self.start_daemon("node1", "--tls-dir", os.path.join(self.folder, "node.bundle"))
        self.assertTrue(self.answer_in_tls(own.addresses["control"], os.path.join(self.folder, "operator.bundle")))
        self.end(job)

    def test_metrics_stay_on_the_loopback_and_in_clear(self):
        job = self.start_long()
        _, http = self.addresses_of(job.launchers[0])
        with urllib.request.urlopen(f"http://{http}/metrics", timeout=harness.PATIENCE_S) as reply:
            self.assertIn("rueda_insecure 0", reply.read().decode())
        with self.assertRaises(ConnectionRefusedError):  # It is another address of this machine, and no loopback to the daemon.
            socket.create_connection(("127.0.0.2", int(http.rpartition(":")[2]))).close()
        self.end(job)

    def test_a_secret_changes_nothing_and_data_are_protected_if_asked(self):
        secret = os.path.join(self.folder, "secret")
        with open(secret, "w", encoding="utf-8") as file:
            file.write("s" * 32)
        job = self.start_long("--rdzv-secret-file", secret, "--data-protection", "encrypt")
        for launcher in job.launchers:
            status = self.status_of(launcher)
            self.assertEqual((status["protection"], status["data_protection"]), ("tls", "encrypt"), status)
        self.end(job)
        job = self.launch_two(SHORT, "--rdzv-secret-file", secret)
        self.assertEqual(job.exit_codes(), [0, 0], job.output())

    def test_beside_a_nodes_own_daemon_a_private_one_does_without(self):
        own = self.start_daemon("alpha", host="0.0.0.0")
        endpoint = f"127.0.0.1:{harness.free_port()}"
        job = Job([self.launch(endpoint, 0, SHORT), self.launch(endpoint, 1, SHORT, "--socket", own.socket)])
        self.assertEqual(job.exit_codes(), [0, 0], job.output())
        self.assertIn("this node's private one goes without a certificate", job.launchers[0].output())

    def test_nothing_is_left_of_launchers_that_are_killed(self):
        job = self.start_long()
        for launcher in job.launchers:
            launcher.send(signal.SIGKILL)
        job.exit_codes()
        self.assert_nothing_left()
        # A daemon that waits for its certificate goes with its launcher, too.
        endpoint = f"127.0.0.1:{harness.free_port()}"
        for end, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)):
            waiting = self.launch(endpoint, 0, SHORT)
            waiting.wait_for("meeting the other nodes")
            waiting.send(end)
            self.assertEqual(waiting.exit_code(), code, waiting.output())
            self.assert_nothing_left()

    # Batch systems send signals to all processes of a job; the launcher decides what they mean.
    def test_a_signal_does_not_end_a_daemon_that_waits(self):
        endpoint = f"127.0.0.1:{harness.free_port()}"
        waiting = self.launch(endpoint, 0, SHORT)
        # From its first moment: the launcher has it begin with signals ignored.
        daemon = harness.wait_until(lambda: [pid for pid, line in self.processes() if "--tls-fd" in line.split()])[0]
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(daemon, number)
        job = Job([waiting, self.launch(endpoint, 1, SHORT)])
        self.assertEqual(job.exit_codes(), [0, 0], job.output())

    def test_who_gives_a_daemon_no_certificate_hears_why(self):
        for arguments, text in ((["--tls-fd", "0"], "--tls-fd is for a launcher's daemon"),
                                (["--private", "--tls-fd", "0", "--tls-dir", "/x"], "no --tls-dir"),
                                (["--private", "--tls-fd", "0"], "--tls-fd: there is no certificate")):
            run = subprocess.run([program("ruedad"), "--socket", os.path.join(self.folder, "s"), *arguments], env=self.env,
                                 input="[1]\n", capture_output=True, text=True, timeout=harness.PATIENCE_S, check=False)
            self.assertIn(text, run.stderr)
            self.assertIn(run.returncode, (1, 2), run.stderr)
        # Nothing at all comes from a launcher that has ended.
        run = subprocess.run([program("ruedad"), "--private", "--tls-fd", "0", "--socket", os.path.join(self.folder, "s")], env=self.env,
                             input="", capture_output=True, text=True, timeout=harness.PATIENCE_S, check=False)
        self.assertEqual((run.returncode, run.stderr), (0, ""))


if __name__ == "__main__":
    harness.main()
