#!/usr/bin/python3
"""Tests who has which token: a rank its own and no other, its children none, and the network none where launchers know each other.

The job's token is told to nobody, a test neither. It is recognised by what follows from it: a rank's token is the HMAC-SHA256 of
the rank's place under it."""

import hmac
import os
import re
import secrets
import signal
import socket
import threading

import harness
from harness import IntegrationTest, Job, PYTHON, rank, read_text

TOKEN_BYTES = 32
FAKE_MUNGE = os.path.join(harness.BUILD, "lib", "fake_munge")

# A rank that says what its own token is, joins its job, and starts a child that keeps all descriptors. It says so to the test, and
# goes on when it is told to.
PARENT = """
import os, signal, subprocess, sys
import numpy
import rueda

fd = int(os.environ["RUEDA_JOB_TOKEN_FD"])
print("own", os.environ["RUEDA_JOB_ID"], os.pread(fd, 64, 0).decode(), flush=True)
go_on = []
signal.signal(signal.SIGUSR1, lambda *_: go_on.append(1))
for _ in range(2):  # the second time it comes back, without the descriptor
    rueda.init()
    rueda.allreduce(numpy.ones(1000, numpy.float32), name="t")
    rueda.shutdown()
rueda.init()
child = subprocess.Popen(["sleep", "1000"], close_fds=False)
print("pid", os.getpid(), flush=True)
print("child", child.pid, flush=True)
while not go_on:
    signal.pause()
child.kill()
child.wait()
rueda.shutdown()
"""

# Starts a rank's program as wrappers do: without any descriptor but the standard ones.
WRAPPER = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"

SHOW = ["/bin/sh", "-c", 'echo own $RUEDA_JOB_ID $(cat /dev/fd/$RUEDA_JOB_TOKEN_FD); exec "$@"', "sh"]


def has_job_token(said, job, number, own):
    """Returns whether the bytes have, raw or in hexadecimal, the token from which the token of rank `number` follows."""
    place = f"rueda rank\n{job}\n{number}".encode()
    candidates = {said[i:i + TOKEN_BYTES] for i in range(len(said) - TOKEN_BYTES + 1)}
    candidates |= {bytes.fromhex(found.decode()) for found in re.findall(rb"(?=([0-9a-fA-F]{64}))", said)}
    return any(hmac.digest(one, place, "sha256").hex() == own for one in candidates)


def descriptors(pid):
    """Returns what the descriptors of a process are."""
    folder = f"/proc/{pid}/fd"
    return [os.readlink(os.path.join(folder, name)) for name in os.listdir(folder)]


class Tap:
    """A proxy that keeps all bytes of the connections that go through it."""

    def __init__(self, port):
        self.said = b""
        self._port = port
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._port))
            except OSError:  # nobody listens yet
                near.close()
                continue
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source, target):
        try:
            while data := source.recv(65536):
                with self._lock:
                    self.said += data
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self):
        self._listener.close()


class RanksTest(IntegrationTest):

    def place_of(self, job, number):
        """Returns the id of the job, and the rank's token in hexadecimal, as the rank has said them."""
        return job.wait_for(number, r"^own (\S+) ([0-9a-f]{64})$").groups()

    def test_what_a_rank_knows_is_no_secret_of_others_and_its_children_know_nothing(self):
        daemons = self.start_daemons("alpha", "beta", arguments=("--log-level", "trace"))
        job = self.start_job(daemons, [1, 1], [PYTHON, "-c", PARENT], extra=("--verbose",))
        name, first = self.place_of(job, 0)
        _, second = self.place_of(job, 1)
        self.assertNotEqual(first, second)
        processes = [one.pid for one in (*daemons, *job.launchers)]
        for number in (0, 1):
            pid, child = job.pid_of(number), int(job.wait_for(number, r"^child (\d+)$").group(1))
            processes += [pid, child]
            self.assertNotIn("RUEDA_JOB_TOKEN", read_text(f"/proc/{child}/environ"))
            for one in (pid, child):
                self.assertEqual([what for what in descriptors(one) if "rueda-rank-token" in what], [])
        texts = {f"{what} of process {pid}": read_text(f"/proc/{pid}/{what}") for pid in processes for what in ("environ", "cmdline")}
        for number in (0, 1):
            os.kill(job.pid_of(number), signal.SIGUSR1)
        self.assertEqual(job.exit_codes(), [0, 0], job.output())
        self.stop_daemons()
        texts.update({f"log of {one.node_id}": one.output() for one in daemons})
        texts["launcher"] = job.output()
        self.assertIn(name, texts["log of alpha"])
        for what, text in texts.items():
            self.assertFalse(has_job_token(text.encode(), name, 0, first), what)
            if what != "launcher":  # it passes on what ranks say
                for own in (first, second):
                    self.assertNotIn(own, text, what)

    def test_a_program_of_a_rank_after_another(self):
        [daemon] = self.start_daemons("alpha")
        once = " ".join(rank("init", "steps:2:1000", "shutdown"))
        job = self.start_job([daemon], [2], ["/bin/sh", "-c", f"{once} && {once} && exec {once}"])
        self.assertEqual(job.exit_codes(), [0], job.output())

    def test_what_has_closed_the_descriptor_is_told_the_remedy(self):
        [daemon] = self.start_daemons("alpha")
        wrapped = [PYTHON, "-c", WRAPPER, *rank("init", "steps:2:1000", "shutdown")]
        job = self.start_job([daemon], [1], wrapped)
        job.wait_for(0, r"^error init .*RUEDA_JOB_TOKEN_FD=\d+ is not the descriptor .*close_fds=False.*--token-in-environment")
        job = self.start_job([daemon], [1], wrapped, extra=("--token-in-environment",))
        self.assertEqual(job.exit_codes(), [0], job.output())
        job.wait_for(0, "^ok steps:2:1000")


class RendezvousTest(IntegrationTest):
    """Two launchers, between whom somebody listens."""

    def meet(self, *flags, **arguments):
        """Returns the job, and what went over the network."""
        if not self.daemons:
            self.start_daemons("alpha", "beta")
        port = harness.free_port()
        tap = Tap(port)
        self.addCleanup(tap.close)
        launchers = [self.ruedarun("-np", "1", "--socket", daemon.socket, "--nnodes", "2", "--node-rank", str(index),
                                   "--rdzv-endpoint", endpoint, *flags, "--", *SHOW, *rank("init", "steps:2:1000", "shutdown"),
                                   **arguments)
                     for index, (daemon, endpoint) in enumerate(zip(self.daemons, (f"127.0.0.1:{port}", tap.endpoint)))]
        job = Job(launchers)
        self.assertEqual(job.exit_codes(), [0, 0], job.output())
        return job, tap.said

    def said_the_token(self, met):
        job, said = met
        self.assertIn(b"beta", said, "node 1 has said its name")
        name, own = job.wait_for(0, r"^own (\S+) ([0-9a-f]{64})$").groups()
        return has_job_token(said, name, 0, own)

    def secret_file(self):
        path = os.path.join(self.folder, "secret")
        with open(path, "w", encoding="utf-8") as file:
            file.write(secrets.token_hex(32) + "\n")
        return path

    def munge(self):
        """Returns the environment of a machine with a munged."""
        folder = os.path.join(self.folder, "munge")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "key"), "wb") as file:
            file.write(secrets.token_bytes(32))
        return {"LD_LIBRARY_PATH": FAKE_MUNGE, "FAKE_MUNGE_FOLDER": folder}

    def test_the_token_is_in_clear_where_launchers_do_not_know_each_other(self):
        self.assertTrue(self.said_the_token(self.meet()), "whoever looks for it must find it here")

    def test_the_token_is_not_in_clear_with_a_secret(self):
        self.assertFalse(self.said_the_token(self.meet("--rdzv-secret-file", self.secret_file())))

    def test_the_token_is_not_in_clear_with_munge(self):
        self.assertFalse(self.said_the_token(self.meet("--rdzv-auth", "munge", extra_env=self.munge())))
        self.assertFalse(self.said_the_token(self.meet(extra_env={**self.munge(), "RUEDA_RDZV_AUTH": "munge"})))

    def test_who_has_not_the_secret_or_munges_key_gets_nothing(self):
        self.start_daemons("alpha", "beta")
        stranger = dict(self.munge())
        for flags, wrong, theirs in ((["--rdzv-secret-file", self.secret_file()], ["--rdzv-auth", "none"], {}),
                                     (["--rdzv-auth", "munge"], ["--rdzv-auth", "munge"], {"FAKE_MUNGE_FOLDER": "/none"})):
            endpoint = f"127.0.0.1:{harness.free_port()}"
            launchers = [self.ruedarun("-np", "1", "--socket", daemon.socket, "--nnodes", "2", "--node-rank", str(index),
                                       "--rdzv-endpoint", endpoint, "--start-timeout", "5", *more, "--", "/bin/echo", "never",
                                       extra_env={**stranger, **env})
                         for index, (daemon, more, env) in enumerate(zip(self.daemons, (flags, wrong), ({}, theirs)))]
            job = Job(launchers)
            self.assertEqual(job.exit_codes(), [1, 1], job.output())
            self.assertNotRegex(job.output(), r"(?m)^\[\d\] never")

    def test_without_libmunge_its_package_is_named(self):
        launcher = self.ruedarun("--rdzv-auth", "munge", "--nnodes", "2", "--node-rank", "0", "--rdzv-endpoint", "127.0.0.1:1",
                                 "true", extra_env={"LD_LIBRARY_PATH": self.no_munge()})
        self.assertEqual(launcher.exit_code(), 2)
        self.assertRegex(launcher.output(), r"--rdzv-auth munge.*libmunge2")

    def no_munge(self):
        """Returns a folder in which the loader finds a libmunge that is none, before any that is installed."""
        folder = os.path.join(self.folder, "nothing")
        os.mkdir(folder)
        with open(os.path.join(folder, "libmunge.so.2"), "w", encoding="utf-8") as file:
            file.write("no library\n")
        return folder


if __name__ == "__main__":
    harness.main()
