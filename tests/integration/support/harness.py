"""Starts real daemons, launchers and ranks for the integration tests, and proves that nothing of them is left behind.

Every test file runs as: FILE_test.py BUILD_DIR SOURCE_DIR. BUILD_DIR holds bin/ and lib/. What a test starts carries a variable
in its environment, by which it is found again, whoever its parent is. RUEDA_TEST_SANITIZED=1 says that the programs are
instrumented: then deadlines are longer and work is less."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request
import uuid

PYTHON = "/usr/bin/python3"
MARK = "RUEDA_INTEGRATION_RUN"

SANITIZED = os.environ.get("RUEDA_TEST_SANITIZED") == "1"
# Each change runs the shorter form of a test, tests/long.sh and the slices the longer one (docs/testing.md).
IS_LONG = os.environ.get("RUEDA_TEST_TIER") == "long"
needs_long_tier = unittest.skipUnless(IS_LONG, "the long tier runs it (RUEDA_TEST_TIER=long)")
# A deadline of the contract is multiplied by this where the programs are not what is shipped.
SLOWNESS = 8 if SANITIZED else 1
# Nothing but a hang takes longer than this.
PATIENCE_S = 60 * (3 if SANITIZED else 1)

if len(sys.argv) < 3 or not os.path.isdir(sys.argv[1]):
    sys.exit(f"usage: {sys.argv[0]} BUILD_DIR SOURCE_DIR [unittest arguments]")
BUILD = os.path.abspath(sys.argv.pop(1))
SOURCE = os.path.abspath(sys.argv.pop(1))
INTEGRATION = os.path.join(SOURCE, "tests", "integration")
SUPPORT = os.path.join(INTEGRATION, "support")  # is for ranks, too
RANKS = os.path.join(INTEGRATION, "ranks")


def amount(change, long, sanitized=None):
    """Returns how much of something a test does: with each change, in the long tier, and with instrumented programs."""
    if SANITIZED and sanitized is not None:
        return sanitized
    return long if IS_LONG else change


FAULTY_RUEDAD = "ruedad-faults"
FAULT = "RUEDA_TEST_FAULT"


def program(name):
    return os.path.join(BUILD, "bin", name)


def rank(*actions):
    """Returns the command line of the test's own rank program (rank.cc)."""
    return [program("integration_rank"), *actions]


def by_rank(commands, otherwise):
    """Returns a command line that runs commands[r] as rank r, and `otherwise` as any other."""
    quoted = {key: " ".join(f"'{word}'" for word in words) for key, words in commands.items()}
    cases = "".join(f"{key}) exec {words};; " for key, words in quoted.items())
    return ["/bin/sh", "-c", f'case "$RANK" in {cases}*) exec "$@";; esac', "sh", *otherwise]


def wait_until(condition, timeout_s=PATIENCE_S):
    """Returns the first true value of condition(), or its last one when the time is up."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value or time.monotonic() > deadline:
            return value
        time.sleep(0.02)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def read_text(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def is_fork_server_of(pid, parents):
    """Returns whether a process starts the GPU workers of one of these daemons (daemon/gpu/worker/fork_server.h)."""
    status = read_text(f"/proc/{pid}/status")
    parent = re.search(r"(?m)^PPid:\s*(\d+)$", status)
    return status.startswith("Name:\truedad-fork\n") and parent is not None and int(parent.group(1)) in parents


class Program:
    """A running program whose output is read as it comes."""

    def __init__(self, command, env, **popen_arguments):
        self.command = command
        self.lines = []
        self._changed = threading.Condition()
        self._process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                         stderr=subprocess.STDOUT, **popen_arguments)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self):
        return self._process.pid

    def _read(self):
        for raw in self._process.stdout:
            with self._changed:
                self.lines.append(raw.decode(errors="replace").rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def output(self):
        with self._changed:
            return "\n".join(self.lines)

    def wait_for(self, pattern, count=1, timeout_s=PATIENCE_S):
        """Returns the first `count` matches of a pattern in lines of the output; AssertionError when they do not come."""
        wanted = re.compile(pattern)
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while True:
                found = [match for match in map(wanted.search, self.lines) if match]
                if len(found) >= count:
                    return found[:count]
                remaining = deadline - time.monotonic()
                if remaining <= 0 or not self._reader.is_alive():
                    raise AssertionError(f"{count} times /{pattern}/ did not come, {len(found)} did, from "
                                         f"{self.command}:\n" + "\n".join(self.lines))
                self._changed.wait(min(remaining, 0.2))

    def is_running(self):
        return self._process.poll() is None

    def send(self, number):
        self._process.send_signal(number)

    def exit_code(self, timeout_s=PATIENCE_S):
        """Waits for the end; AssertionError with the output when it does not come."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.command} did not end in {timeout_s} s:\n{self.output()}") from None
        self._reader.join(5)
        return code

    def close(self):
        if self.is_running():
            self._process.kill()
        self._process.wait()
        self._reader.join(5)
        self._process.stdout.close()


class Daemon(Program):
    """A ruedad of its own on free ports of `host`, serving once the constructor has returned. `inside` goes before its command
    line, such as `ip netns exec NAME`. `fault` is a mistake that it makes (planted_faults.cc)."""

    def __init__(self, node_id, folder, env, arguments=(), host="127.0.0.1", inside=(), fault=None):
        self.node_id = node_id
        self.socket = os.path.join(folder, f"{node_id}.sock")
        read_end, write_end = os.pipe()
        env = {**env, FAULT: fault} if fault else env
        command = [*inside, program(FAULTY_RUEDAD if fault else "ruedad"), "--private", "--listen-host", host, "--node-id", node_id,
                   "--socket", self.socket, "--ready-fd", str(write_end), *arguments]
        if not host.startswith("127.") and "--tls-dir" not in arguments:
            command.append("--insecure")
        super().__init__(command, env, pass_fds=[write_end])
        os.close(write_end)
        with os.fdopen(read_end) as ready:
            line = ready.readline()
        if not line:
            raise AssertionError(f"{command} did not serve:\n{self.output()}")
        self.addresses = json.loads(line)

    def port(self, which):
        """Returns the port of "control", "data" or "http"."""
        return int(self.addresses[which].rsplit(":", 1)[1])

    def get(self, path):
        """Returns (status, body) of an HTTP request."""
        url = f"http://{self.addresses['http']}{path}"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def metric(self, name, *labels):
        """Returns the sum over a metric's series that have all of `labels`, such as 'kind="order"'."""
        _, body = self.get("/metrics")
        series = re.findall(rf"^{re.escape(name)}(?:\{{([^}}]*)\}})? (\S+)$", body, re.MULTILINE)
        return sum(float(value) for found, value in series if set(labels) <= set(found.split(",")))

    def jobs(self):
        """Returns the ids of its jobs."""
        return set(re.findall(r'^rueda_queue_depth\{job="([^"]+)"\}', self.get("/metrics")[1], re.MULTILINE))

    def held(self):
        """Returns what a daemon holds on behalf of its clients: descriptors and memfds mapped."""
        maps = read_text(f"/proc/{self.pid}/maps")
        return {"fds": len(os.listdir(f"/proc/{self.pid}/fd")), "memfds": maps.count("/memfd:")}

    def held_at_rest(self):
        """Returns the same once nothing comes or goes: a scrape's connection closes a moment after its answer."""
        last, since_s = self.held(), time.monotonic()
        deadline_s = since_s + PATIENCE_S
        while time.monotonic() - since_s < 1.0:
            time.sleep(0.05)
            now = self.held()
            if now != last:
                last, since_s = now, time.monotonic()
            if time.monotonic() > deadline_s:
                raise AssertionError(f"daemon {self.node_id} never comes to rest: {now}")
        return last

    def resident_bytes(self):
        return int(re.search(r"VmRSS:\s+(\d+) kB", read_text(f"/proc/{self.pid}/status")).group(1)) * 1024


class Job:
    """One job: a launcher on each node."""

    def __init__(self, launchers):
        self.launchers = launchers

    def output(self):
        return "\n".join(launcher.output() for launcher in self.launchers)

    def lines_of(self, number):
        """Returns what a rank said, without the prefix."""
        prefix = f"[{number}] "
        return [line[len(prefix):] for line in self.output().split("\n") if line.startswith(prefix)]

    def wait_for(self, number, pattern, timeout_s=PATIENCE_S):
        """Returns a match in a line of one rank."""
        wanted = re.compile(pattern)

        def look():
            return next((match for match in map(wanted.search, self.lines_of(number)) if match), None)

        found = wait_until(lambda: look() or not any(p.is_running() for p in self.launchers), timeout_s)
        found = look()
        if not found:
            raise AssertionError(f"rank {number} did not say /{pattern}/:\n{self.output()}")
        return found

    def pid_of(self, number):
        return int(self.wait_for(number, r"^pid (\d+)$").group(1))

    def exit_codes(self, timeout_s=PATIENCE_S):
        return [launcher.exit_code(timeout_s) for launcher in self.launchers]


class IntegrationTest(unittest.TestCase):
    """Starts programs in a folder of their own, and fails when one outlives its test."""

    maxDiff = None

    def setUp(self):
        self.run_id = uuid.uuid4().hex
        self._folder = tempfile.TemporaryDirectory(prefix="rueda-test-")
        self.folder = self._folder.name
        os.chmod(self.folder, 0o755)
        self.scratch = os.path.join(self.folder, "tmp")
        os.mkdir(self.scratch)
        self.programs = []
        self.daemons = []
        self.env = {key: value for key, value in os.environ.items()
                    if not key.startswith(("RUEDA", "MASTER_")) and key not in ("RANK", "LOCAL_RANK", "WORLD_SIZE")}
        library_path = os.path.join(BUILD, "lib")
        self.env.update({MARK: self.run_id, "TMPDIR": self.scratch, "PYTHONDONTWRITEBYTECODE": "1",
                         "RUEDA_LIBRARY": os.path.join(library_path, "librueda.so"),
                         # PyTorch 2 makes a folder for what it compiles, and leaves it.
                         "TORCHINDUCTOR_CACHE_DIR": os.path.join(self.folder, "inductor"),
                         "PYTHONPATH": os.path.join(SOURCE, "client", "python") + os.pathsep + SUPPORT})
        self.addCleanup(self._clean_up)

    # --- Starting --------------------------------------------------------------------------------

    def start(self, command, **popen_arguments):
        env = {**self.env, **popen_arguments.pop("extra_env", {})}
        started = Program(command, env, **popen_arguments)
        self.programs.append(started)
        return started

    def start_daemon(self, node_id, *arguments, **where):
        daemon = Daemon(node_id, self.folder, self.env, arguments, **where)
        self.programs.append(daemon)
        self.daemons.append(daemon)
        return daemon

    def start_daemons(self, *node_ids, arguments=()):
        return [self.start_daemon(node_id, *arguments) for node_id in node_ids]

    def ruedarun(self, *arguments, **popen_arguments):
        return self.start([program("ruedarun"), *arguments], **popen_arguments)

    def start_job(self, daemons, ranks_per_node, command, extra=(), **popen_arguments):
        """Starts a job over running daemons; node i gets ranks_per_node[i] ranks, in order."""
        endpoint = f"127.0.0.1:{free_port()}"
        launchers = []
        for index, (daemon, count) in enumerate(zip(daemons, ranks_per_node)):
            meet = [] if len(daemons) == 1 else ["--nnodes", str(len(daemons)), "--node-rank", str(index),
                                                 "--rdzv-endpoint", endpoint]
            launchers.append(self.ruedarun("-np", str(count), "--socket", daemon.socket, *meet, *extra, "--",
                                           *command, **popen_arguments))
        return Job(launchers)

    # --- Looking ---------------------------------------------------------------------------------

    def processes(self):
        """Returns (pid, command line) of everything that this test has started and that runs."""
        found = []
        mark = f"{MARK}={self.run_id}".encode()
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) == os.getpid():
                continue
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    is_ours = mark in file.read().split(b"\0")
            except OSError:
                continue
            if is_ours:
                found.append((int(name), read_text(f"/proc/{name}/cmdline").replace("\0", " ")))
        return found

    def assert_nothing_left(self, keep=()):
        """Fails when a process of this test, other than the programs in `keep`, or a file of theirs is
        left."""
        kept = {one.pid for one in keep}

        def left():
            return [one for one in self.processes() if one[0] not in kept and not is_fork_server_of(one[0], kept)]

        wait_until(lambda: not left(), 10 * SLOWNESS)
        self.assertEqual(left(), [], "these processes are left")
        self.assertEqual(os.listdir(self.scratch), [], "these files are left")

    def assert_job_runs(self, daemons, ranks_per_node):
        """Checks that the next job on these daemons works."""
        job = self.start_job(daemons, ranks_per_node, rank("init", "steps:3:1000", "shutdown"))
        self.assertEqual(job.exit_codes(), [0] * len(daemons), job.output())

    def stop_daemons(self):
        """Checks that SIGTERM ends every daemon that still runs with 0, and removes its socket."""
        for daemon in self.daemons:
            if daemon.is_running():
                daemon.send(signal.SIGTERM)
        for daemon in self.daemons:
            code = daemon.exit_code()
            if code == -signal.SIGKILL:
                continue  # the test has stopped it
            self.assertEqual(code, 0, f"daemon {daemon.node_id}:\n{daemon.output()}")
            self.assertFalse(os.path.exists(daemon.socket), f"{daemon.socket} is left")

    def tearDown(self):
        self.stop_daemons()
        self.assert_nothing_left()
        for one in self.programs:
            self.assertNotRegex(one.output(), "(Address|Thread|Leak)Sanitizer|runtime error:", one.command)

    def _clean_up(self):
        for pid, _ in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for one in self.programs:
            one.close()
        self._folder.cleanup()


def main():
    unittest.main(verbosity=2)
