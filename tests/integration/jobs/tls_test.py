#!/usr/bin/python3
"""Tests certificates: who has the right one gets in, who has none, another one or a revoked one does not, and they are replaced while a
job runs."""

import grp
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import time
import unittest
import urllib.error
import urllib.request

import harness
from harness import IntegrationTest, program, rank, wait_until

LOOKS_AFTER_S = 30  # a daemon looks at its files every second, and gRPC every five


class TlsTest(IntegrationTest):

    def setUp(self):
        super().setUp()
        self.authority = os.path.join(self.folder, "authority")
        self.make_authority(self.authority)
        self.prometheus = self.issue("metrics", "prometheus")

    # --- Certificates ----------------------------------------------------------------------------

    def certs(self, *arguments):
        run = subprocess.run([program("ruedactl"), "certs", *arguments], env=self.env, capture_output=True, text=True,
                             timeout=harness.PATIENCE_S, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout

    def make_authority(self, folder, domain="test.example"):
        self.certs("init", folder, "--trust-domain", domain)

    def issue(self, role, name, authority=None, without_list=False):
        """Returns the folder of a new bundle."""
        authority = authority or self.authority
        out = os.path.join(self.folder, f"{role}-{name}-{time.monotonic_ns()}")
        self.certs("issue", role, name, "--authority", authority, "--host", "127.0.0.1", "--out", out)
        if without_list:
            os.remove(os.path.join(out, "crl.pem"))
        return out

    def install(self, node_id, bundle=None):
        """Returns the folder for a daemon's --tls-dir."""
        folder = os.path.join(self.folder, f"tls-{node_id}")
        self.certs("install", bundle or self.issue("node", node_id), folder)
        return folder

    def start_with_certificate(self, node_id, *arguments):
        return self.start_daemon(node_id, "--tls-dir", self.install(node_id), *arguments)

    # --- Asking ----------------------------------------------------------------------------------

    def ask(self, daemon, *command, bundle=None):
        """Runs ruedactl at the control port, and returns (exit code, output)."""
        tls = ["--tls-dir", bundle] if bundle else []
        run = subprocess.run([program("ruedactl"), "--address", daemon.addresses["control"], *tls, *command], env=self.env,
                             capture_output=True, text=True, timeout=harness.PATIENCE_S, check=False)
        return run.returncode, run.stdout + run.stderr

    def https(self, daemon, path, bundle=None):
        """Returns (status, body) over HTTPS, and checks the server's certificate."""
        context = ssl.create_default_context(cafile=os.path.join(self.authority, "ca.crt"))
        if bundle:
            context.load_cert_chain(os.path.join(bundle, "tls.crt"), os.path.join(bundle, "tls.key"))
        try:
            with urllib.request.urlopen(f"https://{daemon.addresses['http']}{path}", timeout=harness.PATIENCE_S, context=context) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def metric(self, daemon, name, label):
        """Returns a series of a daemon's metrics."""
        text = self.https(daemon, "/metrics", self.prometheus)[1]
        return float(re.search(rf"(?m)^{name}\{{{re.escape(label)}\}} (\S+)$", text).group(1))

    def refused(self, daemon, at):
        return self.metric(daemon, "rueda_refused_requests_total", f'at="{at}"')

    def serial(self, daemon, which):
        """Returns the serial number of the certificate that a port shows."""
        run = subprocess.run(["openssl", "s_client", "-connect", daemon.addresses[which], "-alpn", "h2"], input="", capture_output=True,
                             text=True, timeout=harness.PATIENCE_S, check=False)
        shown = subprocess.run(["openssl", "x509", "-noout", "-serial"], input=run.stdout, capture_output=True, text=True, check=True)
        return shown.stdout.strip().partition("=")[2]

    # --- Tests -----------------------------------------------------------------------------------

    def test_a_job_runs_and_each_role_gets_what_it_may(self):
        daemons = alpha, _ = self.start_with_certificate("alpha"), self.start_with_certificate("beta")
        self.assert_job_runs(daemons, [1, 1])
        operator, metrics, node = self.issue("operator", "ada"), self.prometheus, self.issue("node", "gamma")
        code, output = self.ask(alpha, "--json", "status", bundle=operator)
        self.assertEqual(code, 0, output)
        status = json.loads(output)
        self.assertEqual((status["protection"], status["identity"]), ("tls", "spiffe://test.example/rueda/node/alpha"))
        self.assertAlmostEqual(status["certificate_expiry"], time.time() + 90 * 86400, delta=86400)
        self.assertEqual(self.ask(alpha, "jobs", bundle=operator)[0], 0)
        findings = json.loads(self.ask(alpha, "--json", "doctor", bundle=operator)[1])["findings"]
        self.assertEqual([one for one in findings if "sandbox" not in one["what"]], [], "a kernel may have less than all of it")
        for bundle in (metrics, node):
            code, output = self.ask(alpha, "jobs", bundle=bundle)
            self.assertEqual(code, 1, output)
            self.assertIn("operator's certificate", output)
        for name in ("prometheus", "gamma"):
            alpha.wait_for(rf"control port: refused 127\.0\.0\.1, {name}: .*operator's certificate")
        self.assertGreaterEqual(self.refused(alpha, "control"), 2)
        for bundle, expected in ((operator, 200), (metrics, 200), (node, 403), (None, 403)):
            code, body = self.https(alpha, "/metrics", bundle)
            self.assertEqual(code, expected, body)
        self.assertIn("rueda_insecure 0", self.https(alpha, "/metrics", metrics)[1])
        alpha.wait_for(r"HTTP port: refused 127\.0\.0\.1: ")
        self.assertGreaterEqual(self.refused(alpha, "http"), 2)
        for path, body in (("/healthz", "ok\n"), ("/readyz", "ready\n")):
            self.assertEqual(self.https(alpha, path), (200, body))

    def test_who_has_no_certificate_or_another_authoritys_is_refused(self):
        alpha = self.start_with_certificate("alpha")
        self.assertEqual(self.ask(alpha, "status")[0], 1)
        elsewhere = os.path.join(self.folder, "elsewhere")
        self.make_authority(elsewhere)
        stranger = self.issue("operator", "ada", elsewhere)
        # The stranger takes this daemon for a right one, so that it is the daemon that refuses.
        shutil.copy(os.path.join(self.authority, "ca.crt"), os.path.join(self.folder, "ca.crt"))
        with open(os.path.join(stranger, "ca.crt"), "a", encoding="utf-8") as file:
            file.write(harness.read_text(os.path.join(self.folder, "ca.crt")))
        before = self.refused(alpha, "control")
        code, output = self.ask(alpha, "status", bundle=stranger)
        self.assertEqual(code, 1, output)
        alpha.wait_for("control port: refused a TLS handshake: ")
        self.assertGreater(self.refused(alpha, "control"), before)
        self.assertEqual(self.ask(alpha, "status", bundle=self.issue("operator", "ada"))[0], 0)

    def test_what_is_no_tls_is_refused_at_both_ports(self):
        alpha = self.start_with_certificate("alpha")
        for which, says in (("control", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), ("http", b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")):
            before = self.refused(alpha, which)
            with socket.create_connection(("127.0.0.1", alpha.port(which)), timeout=harness.PATIENCE_S) as plain:
                plain.sendall(says)
                answer = b""
                while piece := plain.recv(4096):
                    answer += piece
            self.assertNotIn(b"rueda", answer)
            self.assertNotIn(b"HTTP/1.1", answer)
            self.assertTrue(wait_until(lambda which=which, before=before: self.refused(alpha, which) > before))
            alpha.wait_for(f"{'HTTP' if which == 'http' else which} port: refused ")
        self.assert_job_runs([alpha], [1])

    def test_certificates_are_replaced_while_a_job_runs(self):
        daemons = alpha, beta = self.start_with_certificate("alpha"), self.start_with_certificate("beta")
        before = {(one, which): self.serial(one, which) for one in daemons for which in ("control", "http")}
        job = self.start_job(daemons, [1, 1], rank("init", "steps:100000000:1000", "shutdown"))
        self.assertTrue(wait_until(lambda: all(len(self.jobs_by_socket(one)) == 1 for one in daemons)))
        # A link that was made anew would have begun with a hello.
        links = {one: self.hellos(one) for one in daemons}
        for one in daemons:
            self.install(one.node_id)
        self.assertTrue(wait_until(lambda: all(self.serial(*key) != serial for key, serial in before.items()), LOOKS_AFTER_S))
        for one in daemons:
            self.assertEqual([entry["state"] for entry in self.jobs_by_socket(one)], ["running"])
            self.assertEqual(self.hellos(one), links[one])
            self.assertNotRegex(one.output(), "lost the control connection")
        done = {one: self.operations(one) for one in daemons}
        self.assertTrue(wait_until(lambda: all(self.operations(one) > done[one] + 10 for one in daemons)))
        for launcher in job.launchers:
            self.assertTrue(launcher.is_running(), job.output())
            launcher.send(harness.signal.SIGINT)
        job.exit_codes()
        self.assert_job_runs([alpha, beta], [1, 1])

    def hellos(self, daemon):
        return self.metric(daemon, "rueda_control_messages_total", 'direction="received",kind="membership"')

    def operations(self, daemon):
        [entry] = self.jobs_by_socket(daemon)
        return int(entry["operations"])

    def jobs_by_socket(self, daemon):
        run = subprocess.run([program("ruedactl"), "--socket", daemon.socket, "--json", "jobs"], env=self.env, capture_output=True,
                             text=True, timeout=harness.PATIENCE_S, check=True)
        return [entry for entry in json.loads(run.stdout)["jobs"] if entry["state"] == "running"]

    def test_files_that_do_not_fit_each_other_stop_no_connection(self):
        alpha, beta = self.start_with_certificate("alpha"), self.start_with_certificate("beta")
        operator = self.issue("operator", "ada")
        before = self.serial(alpha, "control")
        with open(os.path.join(self.folder, "tls-alpha", "tls.key"), "w", encoding="utf-8") as file:
            file.write(harness.read_text(os.path.join(self.issue("node", "alpha"), "tls.key")))

        def doctor_says():
            return self.ask(alpha, "doctor", bundle=operator)[1]

        self.assertTrue(wait_until(lambda: "the key is not that of the certificate" in doctor_says(), LOOKS_AFTER_S))
        time.sleep(7)  # gRPC has looked at its files since
        self.assertEqual(self.serial(alpha, "control"), before)
        self.assert_job_runs([alpha, beta], [1, 1])
        self.install("alpha")
        self.assertTrue(wait_until(lambda: self.serial(alpha, "control") != before, LOOKS_AFTER_S))
        self.assert_job_runs([alpha, beta], [1, 1])

    def test_revoked_certificates_are_refused_at_once(self):
        alpha = self.start_with_certificate("alpha")
        ada, bob = self.issue("operator", "ada"), self.issue("operator", "bob")
        self.assertEqual(self.ask(alpha, "status", bundle=ada)[0], 0)
        self.certs("revoke", "operator", "ada", "--authority", self.authority)
        older = self.issue("node", "alpha", without_list=True)
        self.certs("install-list", os.path.join(self.authority, "crl.pem"), os.path.join(self.folder, "tls-alpha"))
        self.assertTrue(wait_until(lambda: self.ask(alpha, "status", bundle=ada)[0] == 1, LOOKS_AFTER_S))
        self.assertEqual(self.https(alpha, "/metrics", ada)[0], 403)
        self.assertIn("has been revoked", self.https(alpha, "/metrics", ada)[1])
        self.assertEqual(self.ask(alpha, "status", bundle=bob)[0], 0)
        self.assertIn("revoked", self.certs("show", self.authority))
        # A bundle without the list does not take it away, and a later one brings it along.
        self.certs("install", older, os.path.join(self.folder, "tls-alpha"))
        self.assertEqual(harness.read_text(os.path.join(self.folder, "tls-alpha", "crl.pem")),
                         harness.read_text(os.path.join(self.authority, "crl.pem")))
        time.sleep(3)
        self.assertEqual(self.ask(alpha, "status", bundle=ada)[0], 1)
        self.assertTrue(os.path.exists(os.path.join(self.issue("node", "beta"), "crl.pem")))

    def test_a_daemon_with_certificates_and_one_without_do_not_meet(self):
        alpha, beta = self.start_with_certificate("alpha"), self.start_daemon("beta")
        for daemons in ([alpha, beta], [beta, alpha]):
            job = self.start_job(daemons, [1, 1], rank("init"), extra=["--start-timeout", "4"])
            self.assertNotIn(0, job.exit_codes(), job.output())
            self.assertIn("cannot be reached", job.output())
        self.assert_job_runs([alpha], [1])

    def test_wrong_settings_end_with_a_sentence(self):
        def end_of(*arguments):
            run = subprocess.run([program("ruedad"), "--private", "--node-id", "alpha", "--socket", os.path.join(self.folder, "s"),
                                  *arguments], env=self.env, capture_output=True, text=True, timeout=harness.PATIENCE_S, check=False)
            return run.returncode, run.stderr

        code, error = end_of("--listen-host", "0.0.0.0")
        self.assertEqual(code, 2)
        self.assertRegex(error, "certs init.*--tls-dir.*--insecure")
        code, error = end_of("--tls-dir", self.issue("node", "beta"))
        self.assertEqual(code, 1)
        self.assertRegex(error, "is for spiffe://test.example/rueda/node/beta, and this is node alpha")
        code, error = end_of("--tls-dir", self.issue("operator", "alpha"))
        self.assertEqual(code, 1)
        bundle = self.issue("node", "alpha")
        os.chmod(os.path.join(bundle, "tls.key"), 0o644)
        self.assertRegex(end_of("--tls-dir", bundle)[1], "tls.key: others than its owner.*chmod 0600")
        os.remove(os.path.join(bundle, "tls.key"))
        self.assertRegex(end_of("--tls-dir", bundle)[1], "tls.key: No such file")

    def test_what_certs_cannot_do_is_said(self):
        def refusal(*arguments):
            run = subprocess.run([program("ruedactl"), "certs", *arguments], env=self.env, capture_output=True, text=True,
                                 timeout=harness.PATIENCE_S, check=False)
            self.assertNotEqual(run.returncode, 0, arguments)
            return run.stderr

        at = ["--authority", self.authority]
        self.assertIn("has an authority", refusal("init", self.authority, "--trust-domain", "other"))
        self.assertIn("trust domain", refusal("init", os.path.join(self.folder, "new"), "--trust-domain", "Big Name"))
        self.assertFalse(os.path.exists(os.path.join(self.folder, "new")))
        self.assertIn("a name in a certificate", refusal("issue", "node", "a b", *at))
        self.assertIn("no host name", refusal("issue", "node", "a", "--host", "a,URI:spiffe://x", *at))
        self.assertIn("role", refusal("issue", "root", "a", *at))
        self.assertIn("certs init", refusal("issue", "node", "a", "--authority", self.folder))
        bundle = self.issue("node", "a")
        self.assertIn("is there already", refusal("issue", "node", "a", "--out", bundle, *at))
        self.assertIn("no certificate of", refusal("revoke", "node", "nobody", *at))
        self.assertIn("nobody-has-this-group", refusal("install", bundle, os.path.join(self.folder, "t"), "--group", "nobody-has-this-group"))
        shutil.copy(os.path.join(self.issue("node", "a"), "tls.key"), os.path.join(bundle, "tls.key"))
        self.assertIn("not that of the certificate", refusal("install", bundle, os.path.join(self.folder, "t")))
        self.assertFalse(os.path.exists(os.path.join(self.folder, "t")))
        modes = {name: os.stat(os.path.join(self.authority, name)).st_mode & 0o777 for name in ("", "ca.key", "ca.crt")}
        self.assertEqual(modes, {"": 0o700, "ca.key": 0o600, "ca.crt": 0o644})

    def test_an_installation_replaces_all_files_at_once(self):
        first, second = self.issue("node", "a"), self.issue("node", "a")
        folder = self.install("a", first)
        inside = os.path.join(folder, os.readlink(os.path.join(folder, "..data")))
        self.certs("install", second, folder)
        for name in ("tls.crt", "tls.key", "ca.crt"):
            self.assertEqual(harness.read_text(os.path.join(folder, name)), harness.read_text(os.path.join(second, name)))
        self.assertFalse(os.path.exists(inside), "the version before is left")
        self.assertEqual(os.stat(os.path.join(folder, "tls.key")).st_mode & 0o777, 0o600)
        self.assertFalse(os.path.lexists(os.path.join(folder, "crl.pem")))

    @unittest.skipUnless(os.geteuid() == 0, "files are given to another group by root")
    def test_the_group_that_may_read_a_key_stays(self):
        group = grp.getgrnam("daemon")
        folder = os.path.join(self.folder, "tls")
        self.certs("install", self.issue("node", "a"), folder, "--group", "daemon")
        for _ in range(2):
            key = os.stat(os.path.join(folder, "tls.key"))
            self.assertEqual((key.st_gid, key.st_mode & 0o777), (group.gr_gid, 0o640))
            self.assertEqual([(found.st_gid, found.st_mode & 0o777) for found in (os.stat(folder), os.stat(os.path.join(folder, "..data")))],
                             [(group.gr_gid, 0o750)] * 2)
            self.certs("install", self.issue("node", "a"), folder)

    def test_nothing_but_a_version_of_its_own_is_removed(self):
        folder, other = self.install("a"), os.path.join(self.folder, "other")
        os.mkdir(other)
        kept = os.path.join(other, "tls.crt")
        with open(kept, "w", encoding="utf-8"):
            pass
        for target in ("../other", "..", "../other/"):
            os.remove(os.path.join(folder, "..data"))
            os.symlink(target, os.path.join(folder, "..data"))
            self.certs("install", self.issue("node", "a"), folder)
            self.assertTrue(os.path.exists(kept), target)

    def test_without_certificates_nobody_on_the_loopback_is_told_of_jobs(self):
        alpha = self.start_daemon("alpha")
        self.assertEqual(self.ask(alpha, "status")[0], 0)
        for command in ("jobs", "stalls", "doctor"):
            code, output = self.ask(alpha, command)
            self.assertEqual(code, 1, output)
            self.assertIn("operator's certificate", output)
        beta = self.start_daemon("beta", "--insecure")
        self.assertEqual(self.ask(beta, "jobs")[0], 0)


if __name__ == "__main__":
    harness.main()
