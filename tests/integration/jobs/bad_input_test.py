#!/usr/bin/python3
"""Tests wrong arguments, wild records, strangers and garbage: none ends a daemon, and each is told who is to blame."""

import os
import socket
import struct
import unittest

import harness
from harness import PYTHON, SOURCE, IntegrationTest, by_rank, rank, wait_until
from raw_client import VERSION

RAW_RANK = os.path.join(SOURCE, "tests", "integration", "ranks", "raw_rank.py")
NOBODY = 65534
GOES_ON = ["steps:3:1000", "shutdown"]


def raw_rank(how):
    return [PYTHON, RAW_RANK, how]


class ArgumentTest(IntegrationTest):

    def test_unknown_dtype_and_op(self):
        [daemon] = self.start_daemons("alpha")
        bad = rank("init", "reduce:w:17:sum:8", "reduce:w:float32:23:8", *GOES_ON)
        good = rank("init", *GOES_ON)
        job = self.start_job([daemon], [2], by_rank({0: bad}, good))
        self.assertEqual(job.exit_codes(), [0], job.output())
        job.wait_for(0, r"^error reduce:w:17\S* RUEDA_ERR_INVALID_ARGUMENT at \S+: .*w.*\b17\b")
        job.wait_for(0, r"^error reduce:w:float32\S* RUEDA_ERR_INVALID_ARGUMENT at \S+: .*w.*\b23\b")

    def test_a_tensor_submitted_twice(self):
        daemons = self.start_daemons("alpha", "beta")
        # The other rank comes late, so that the first submission is certainly in flight.
        late = rank("init", "pause", "reduce:grad:float32:average:100", *GOES_ON)
        job = self.start_job(daemons, [1, 1], by_rank({1: late}, rank("init", "twice:grad:100", *GOES_ON)))
        job.wait_for(0, r"^error twice:\S* second RUEDA_ERR_DUPLICATE_NAME at \S+: .*\bgrad\b")
        job.wait_for(1, "^pausing")
        os.kill(job.pid_of(1), 10)
        self.assertEqual(job.exit_codes(), [0, 0], job.output())
        job.wait_for(0, "^ok twice:grad:100 end")

    def test_no_daemon_at_the_socket(self):
        path = os.path.join(self.folder, "none.sock")
        place = {"RUEDA_SOCKET": path, "RUEDA_JOB_ID": "job", "RUEDA_JOB_TOKEN": "00" * 32, "RANK": "0",
                 "LOCAL_RANK": "0"}
        client = self.start(rank("init"), extra_env=place)
        self.assertEqual(client.exit_code(), 3)
        self.assertRegex(client.output(), rf"error init RUEDA_ERR_\w+ at \S+: .*{path}.*start .*ruedad")
        launcher = self.ruedarun("-np", "1", "--socket", path, "true")
        self.assertEqual(launcher.exit_code(), 1)
        self.assertRegex(launcher.output(), rf"{path}.*start one with .*ruedad --socket")
        outside = self.start(rank("init"), extra_env={"RANK": "0"})
        self.assertEqual(outside.exit_code(), 3)
        self.assertRegex(outside.output(), "RUEDA_JOB_ID is not set; start the program with ruedarun")


class ServedByAStrangerTest(IntegrationTest):
    """A user who is not trusted listens where a daemon is looked for, and is told nothing."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if os.geteuid() != 0:
            raise unittest.SkipTest("only root can listen as another user")

    def setUp(self):
        super().setUp()
        os.chmod(self.folder, 0o1777)  # anybody may put a socket there, as in /tmp
        self.listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(self.listener.close)
        os.seteuid(NOBODY)  # the kernel records who called listen()
        try:
            self.path = os.path.join(self.folder, "ruedad.sock")
            self.listener.bind(self.path)
            self.listener.listen()
        finally:
            os.seteuid(0)

    def assert_refused(self, program):
        self.assertNotEqual(program.exit_code(), 0)
        self.assertRegex(program.output(), f"{self.path}.* runs as user {NOBODY}, .*set RUEDA_DAEMON_UID={NOBODY}")
        self.listener.settimeout(0)
        connection, _ = self.listener.accept()
        with connection:
            self.assertEqual(connection.recv(1), b"", "the stranger was sent something")

    def test_a_rank_tells_it_nothing(self):
        place = {"RUEDA_SOCKET": self.path, "RUEDA_JOB_ID": "job", "RUEDA_JOB_TOKEN": "00" * 32, "RANK": "0",
                 "LOCAL_RANK": "0"}
        self.assert_refused(self.start(rank("init"), extra_env=place))

    def test_the_launcher_tells_it_nothing(self):
        self.assert_refused(self.ruedarun("-np", "1", "--socket", self.path, "true"))

    def test_ruedactl_tells_it_nothing(self):
        self.assert_refused(self.start([harness.program("ruedactl"), "--socket", self.path, "status"]))

    def test_who_is_named_is_trusted(self):
        program = self.start([harness.program("ruedactl"), "--socket", self.path, "status"], extra_env={"RUEDA_DAEMON_UID": str(NOBODY)})
        self.listener.settimeout(20)
        connection, _ = self.listener.accept()
        with connection:
            self.assertEqual(connection.recv(4), b"RUDG", "it began to ask")
        self.assertNotEqual(program.exit_code(), 0)


class HostileClientTest(IntegrationTest):
    """Tests ranks that speak the ABI by themselves."""

    def assert_session_ends(self, how, pattern):
        with self.subTest(how=how):
            # Each way has a job of its own, because breaking the protocol loses the rank.
            job = self.start_job(self.daemons, [2, 1], by_rank({1: raw_rank(how)}, rank("init", "loop:1000")))
            job.wait_for(1, rf"^failed -5: .*\brank 1\b.*{pattern}")
            job.wait_for(1, "^closed")
            for number in (0, 2):
                job.wait_for(number, r"^error loop:1000 RUEDA_ERR_RANK_LOST at \S+: .*\brank 1\b")
            job.exit_codes()
            for daemon in self.daemons:
                self.assertTrue(daemon.is_running(), daemon.output())

    def test_wild_records(self):
        self.start_daemons("alpha", "beta")
        for how, pattern in (("input-beyond", "outside its arena"), ("output-beyond", "outside its arena"),
                             ("offset-wraps", "outside its arena"), ("unaligned", "multiple of its element"),
                             ("overlap", "overlap"), ("no-arena", "arena 99"), ("no-tensor", "12345"),
                             ("flags", "flags"), ("reserved", "reserved"), ("tail", ""), ("tail-back", "")):
            self.assert_session_ends(how, pattern)
        wait_until(lambda: all(one.metric("rueda_jobs") == 0 for one in self.daemons))
        for daemon in self.daemons:
            self.assertEqual(daemon.held()["memfds"], 0)
        self.assert_job_runs(self.daemons, [2, 2])

    def assert_refused(self, how, pattern):
        with self.subTest(how=how):
            before = self.daemons[0].metric("rueda_rejected_clients_total")
            # Rank 0 is refused and then starts again as it should: the job has lost nothing.
            twice = ["/bin/sh", "-c", f'"{PYTHON}" "{RAW_RANK}" {how}; exec "$@"', "sh", *rank("init", *GOES_ON)]
            job = self.start_job(self.daemons, [2], by_rank({0: twice}, rank("init", *GOES_ON)))
            job.wait_for(0, pattern)
            self.assertEqual(job.exit_codes(), [0], job.output())
            self.assertEqual(self.daemons[0].metric("rueda_rejected_clients_total"), before + 1)

    def test_who_may_not_attach(self):
        self.start_daemons("alpha")
        theirs, ours = rf"\b{VERSION + 7}\b", rf"\b{VERSION}\b"
        self.assert_refused("other-version", rf"^refused -9: .*({theirs}.*{ours}|{ours}.*{theirs})")
        self.assert_refused("wrong-token", r"^refused -10: process \d+ has the wrong token for rank 0 of job \S+")
        self.assert_refused("unknown-job", r"^refused -11: .*no-such-job.*alpha.*ruedarun")
        self.assert_refused("wrong-rank", r"^refused -10: .*wrong token for rank 77 of job .* RANK ")
        self.assert_refused("another-rank", r"^refused -10: .*wrong token for rank 1 of job ")

    def test_another_user(self):
        if os.geteuid() != 0:
            self.skipTest("only root can become another user")
        self.start_daemons("alpha")
        self.assert_refused("other-user", r"^refused -10: .*belongs to user 0, and process \d+ is user 65534's: run it as the user")


NOBODY = 65534
# This program is a user who opens as many connections as he may, and holds them.
CONNECTS = """
import os, signal, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
held, refused = [], 0
for i in range(60):
    one = socket.socket(socket.AF_UNIX)
    one.connect(sys.argv[1])
    try:
        one.sendall(b"RUDG" if i % 2 else b"RU")
        one.settimeout(0.05)
        refused += one.recv(64) == b""
    except TimeoutError:
        pass
    except OSError:
        refused += 1
    held.append(one)
print("refused", refused, flush=True)
signal.pause()
"""


class NeighbourTest(IntegrationTest):
    """What one user does to the daemon, another does not feel."""

    def test_a_descriptor_that_lingers(self):
        [daemon] = self.start_daemons("alpha")
        hostile = self.start_job([daemon], [1], raw_rank("lingering"))
        hostile.wait_for(0, "^lingers: .*1 descriptor|^lingers: .*not 4 descriptors")
        # The loop would sleep for an hour.
        self.assert_job_runs([daemon], [2])
        self.assertTrue(wait_until(lambda: daemon.metric("rueda_abandoned_doors_total") >= 1))
        daemon.wait_for(r"a descriptor of user \d+ keeps whoever closes it waiting")
        self.assert_job_runs([daemon], [2])
        os.kill(hostile.pid_of(0), 15)
        hostile.exit_codes()

    def test_a_file_of_a_file_system_that_does_not_answer(self):
        if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
            self.skipTest("only root can mount a file system of its own, where there is /dev/fuse")
        [daemon] = self.start_daemons("alpha")
        hostile = self.start_job([daemon], [1], raw_rank("fuse"))
        [said] = hostile.wait_for(0, "^(lingers|cannot be): .*").groups()
        if said == "cannot be":
            self.skipTest("mount is not allowed here")
        self.assert_job_runs([daemon], [2])
        self.assertTrue(wait_until(lambda: daemon.metric("rueda_abandoned_doors_total") >= 1))
        daemon.wait_for(r"a descriptor of user \d+ keeps whoever closes it waiting")
        self.assertTrue(daemon.is_running())  # It serves others; this user it may refuse until the file is let go.
        os.kill(hostile.pid_of(0), 15)
        hostile.exit_codes()

    def test_a_user_who_takes_all_connections(self):
        if os.geteuid() != 0:
            self.skipTest("only root can become another user")
        [daemon] = self.start_daemons("alpha", arguments=["--quota-connections", "20"])
        os.chmod(self.folder, 0o755)
        hostile = self.start([PYTHON, "-c", CONNECTS, daemon.socket])
        [refused] = hostile.wait_for(r"^refused (\d+)")
        self.assertGreaterEqual(int(refused[1]), 40)
        daemon.wait_for(rf"of user {NOBODY}: user {NOBODY} has \d+ connections .*--quota-connections")
        self.assert_job_runs([daemon], [2])
        hostile.send(9)
        hostile.exit_code()


GARBAGE = {
    "nothing": b"",
    "zeroes": bytes(4096),
    "noise": bytes(range(256)) * 64,
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "half an ABI header": struct.pack("<I", 0x41445552) + b"\1",
    "ABI header of a giant": struct.pack("<IHHII", 0x41445552, 1, 1, 0xffffffff, 0),
    "ABI attach cut short": struct.pack("<IHHII", 0x41445552, 1, 1, 104, 0) + b"job",
    "ABI unknown type": struct.pack("<IHHII", 0x41445552, 1, 77, 0, 0),
    "half a call's header": b"RUDG\1\1",
    "a call of a giant": struct.pack("<4sBBHII", b"RUDG", 1, 1, 2, 0xffffffff, 0),
    "a call of another version": struct.pack("<4sBBHII", b"RUDG", 9, 1, 2, 0, 0),
    "a call without a method": struct.pack("<4sBBHII", b"RUDG", 1, 1, 999, 0, 0),
    "a call and then noise": struct.pack("<4sBBHII", b"RUDG", 1, 1, 2, 0, 0) + bytes(range(256)) * 16,
    "a registration that is none": struct.pack("<4sBBHII", b"RUDG", 1, 1, 1, 64, 0) + b"\xff" * 64,
    "half of HTTP/2's opening": b"PRI * HT",
    "HTTP/2 and then noise": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(range(256)) * 16,
}


class GarbageTest(IntegrationTest):

    def throw(self, address, data):
        """Sends data, ends the sending half, and reads whatever the daemon answers until it closes."""
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        with socket.socket(family) as stranger:
            stranger.settimeout(harness.PATIENCE_S)
            stranger.connect(address)
            try:
                stranger.sendall(data)
                stranger.shutdown(socket.SHUT_WR)
                while stranger.recv(65536):
                    pass
            except TimeoutError:
                self.fail(f"{address} neither answered nor closed")
            except OSError:
                pass  # the daemon closed first

    def test_garbage_on_every_port(self):
        daemons = self.start_daemons("alpha", "beta")
        job = self.start_job(daemons, [2, 2], rank("init", "loop:10000"))
        job.wait_for(0, "^looping")
        held = daemons[0].held()
        targets = [("127.0.0.1", daemons[0].port(which)) for which in ("control", "data", "http")]
        for target in (*targets, daemons[0].socket):
            for what, data in GARBAGE.items():
                with self.subTest(target=target, what=what):
                    self.throw(target, data)
                    self.assertTrue(daemons[0].is_running(), daemons[0].output())
        self.assertGreaterEqual(daemons[0].metric("rueda_rejected_connections_total"), len(GARBAGE) - 1)
        self.assertGreaterEqual(daemons[0].metric("rueda_rejected_clients_total"), 5)
        # The job that ran meanwhile noticed nothing.
        self.assertEqual([line for line in job.output().split("\n") if "error" in line], [])
        wait_until(lambda: daemons[0].held() == held, 10)
        self.assertLessEqual(daemons[0].held()["fds"], held["fds"] + 2)
        for launcher in job.launchers:
            launcher.send(2)
        job.exit_codes()
        self.assert_job_runs(daemons, [2, 2])

    def test_silent_connections_are_closed(self):
        [daemon] = self.start_daemons("alpha")
        with socket.socket(socket.AF_UNIX) as local, socket.socket() as data:
            for one, address in ((local, daemon.socket), (data, ("127.0.0.1", daemon.port("data")))):
                one.settimeout(harness.PATIENCE_S)
                one.connect(address)
            self.assertEqual(local.recv(1), b"")
            self.assertEqual(data.recv(1), b"")


class StartTest(IntegrationTest):
    """A ruedad that cannot start says why, and exits with a code that is not 0."""

    def fails(self, *arguments, code=1):
        folder = os.path.join(self.folder, "failing.sock")
        daemon = self.start([harness.program("ruedad"), "--private", "--listen-host", "127.0.0.1", "--socket", folder,
                             *arguments])
        got = daemon.exit_code()
        if code is None:
            self.assertNotEqual(got, 0, daemon.output())
        else:
            self.assertEqual(got, code, daemon.output())
        self.assertFalse(os.path.exists(folder))
        return daemon.output()

    def test_a_port_that_is_taken(self):
        for which in ("control", "data", "http"):
            with self.subTest(port=which), socket.socket() as taken:
                taken.bind(("127.0.0.1", 0))
                taken.listen()
                port = taken.getsockname()[1]
                arguments = [f"--{other}-port=0" for other in ("control", "data", "http") if other != which]
                socket_path = os.path.join(self.folder, "failing.sock")
                daemon = self.start([harness.program("ruedad"), "--listen-host", "127.0.0.1", "--socket", socket_path,
                                     f"--{which}-port={port}", *arguments])
                self.assertEqual(daemon.exit_code(), 1, daemon.output())
                self.assertRegex(daemon.output(), rf"\b{port}\b")
                self.assertRegex(daemon.output(), rf"--{which}-port")
                self.assertFalse(os.path.exists(socket_path))

    def test_a_socket_that_is_taken(self):
        [daemon] = self.start_daemons("alpha")
        self.assertRegex(self.fails_with_socket(daemon.socket), rf"another daemon listens on {daemon.socket}")
        missing = os.path.join(self.folder, "missing", "x.sock")
        self.assertRegex(self.fails_with_socket(missing), "mkdir -p")
        self.assert_job_runs([daemon], [2])

    def fails_with_socket(self, path):
        daemon = self.start([harness.program("ruedad"), "--private", "--listen-host", "127.0.0.1", "--socket", path])
        self.assertEqual(daemon.exit_code(), 1, daemon.output())
        return daemon.output()

    def test_configuration_file(self):
        path = os.path.join(self.folder, "ruedad.toml")

        def config(text):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            return self.fails("--config", path, code=None)

        self.assertRegex(config("colour = 7\n"), "colour")
        self.assertRegex(config('log-level = "loud"\n'), "log-level.*loud|loud.*log-level")
        self.assertRegex(config('chunk-bytes = 1\n'), "chunk-bytes")
        self.assertRegex(self.fails("--config", path + ".none", code=None), r"\.none")

    def test_flags(self):
        for arguments, pattern in ((["--no-such-flag"], "no-such-flag"), (["--http-port", "70000"], "http-port"),
                                   (["--chunk-bytes", "12"], "chunk-bytes"), (["--failure-timeout", "0.01"], "failure-timeout"),
                                   (["--nodes", "nonsense"], "nonsense"), (["--node-id", "x" * 64], "node-id"),
                                   (["--fault", "reduce"], "fault"), (["--tcp-congestion", "carrier-pigeon"], "carrier-pigeon"),
                                   (["--log-format", "xml"], "log-format")):
            with self.subTest(arguments=arguments):
                self.assertRegex(self.fails(*arguments, code=None), pattern)


if __name__ == "__main__":
    harness.main()
