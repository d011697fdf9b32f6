#!/usr/bin/python3
"""Tests what an operator sees of daemons at work: metrics, health, and ruedactl."""

import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess

import harness
from harness import SOURCE, IntegrationTest, rank, wait_until


class OperatorTest(IntegrationTest):

    def setUp(self):
        super().setUp()
        self.start_daemons("alpha", "beta")
        self.job = self.start_job(self.daemons, [2, 1],
                                  rank("init", "steps:20:50000", "pause", "steps:3:1000", "shutdown"),
                                  # Measuring the network would count as traffic, so the algorithm is fixed.
                                  extra=["--algorithm", "ring"])
        for number in range(3):
            self.job.wait_for(number, "^pausing")

    def tearDown(self):
        for number in range(3):
            os.kill(self.job.pid_of(number), signal.SIGUSR1)
        self.assertEqual(self.job.exit_codes(), [0, 0], self.job.output())
        super().tearDown()

    def ruedactl(self, *arguments):
        run = self.start([harness.program("ruedactl"), "--socket", self.daemons[0].socket, *arguments])
        self.assertEqual(run.exit_code(), 0, run.output())
        return run.output()

    def test_metrics(self):
        status, text = self.daemons[0].get("/metrics")
        self.assertEqual(status, 200)
        promtool = shutil.which("promtool")
        if promtool:
            checked = subprocess.run([promtool, "check", "metrics"], input=text, text=True, capture_output=True, check=False)
            self.assertEqual((checked.returncode, checked.stdout, checked.stderr), (0, "", ""))
        with open(os.path.join(SOURCE, "docs", "metrics.md"), encoding="utf-8") as file:
            documented = set(re.findall(r"^\| `((?:rueda|process)_\w+)` \|", file.read(), re.MULTILINE))
        present = set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))
        self.assertEqual(documented, present)

    def test_values(self):
        alpha, beta = self.daemons
        for daemon, clients in ((alpha, 2), (beta, 1)):
            self.assertEqual(daemon.metric("rueda_clients"), clients)
            self.assertEqual(daemon.metric("rueda_jobs"), 1)
            self.assertEqual(daemon.metric("rueda_tensors_total"), 20)
            self.assertEqual(daemon.metric("rueda_reduced_bytes_total"), 20 * 50000 * 4)
            self.assertGreaterEqual(daemon.metric("rueda_arena_bytes"), clients * 2 * 50000 * 4)
            self.assertGreater(daemon.metric("rueda_staging_bytes"), 0)
            self.assertEqual(daemon.metric("rueda_queue_depth"), 0)
            self.assertEqual(daemon.metric("rueda_ring_seconds_count"), daemon.metric("rueda_operations_total"))
            # On two nodes, each byte that is reduced has 2 (n - 1) / n = 1 byte of payload on the wire, and there are headers.
            sent = daemon.metric("rueda_network_sent_bytes_total")
            self.assertGreaterEqual(sent, 20 * 50000 * 4)
            self.assertLess(sent, 1.1 * 20 * 50000 * 4)
        sent = alpha.metric("rueda_network_sent_bytes_total")
        wait_until(lambda: beta.metric("rueda_network_received_bytes_total") == sent, 5)
        self.assertEqual(beta.metric("rueda_network_received_bytes_total"), sent)

    def test_health(self):
        for daemon in self.daemons:
            self.assertEqual(daemon.get("/healthz")[0], 200)
            self.assertEqual(daemon.get("/readyz")[0], 200)
            self.assertEqual(daemon.get("/nothing")[0], 404)

    def test_status(self):
        alpha = self.daemons[0]
        status = json.loads(self.ruedactl("--json", "status"))
        expected = {"node_id": "alpha", "pid": alpha.pid, "control_address": alpha.addresses["control"],
                    "data_address": alpha.addresses["data"], "http_address": alpha.addresses["http"],
                    "socket": alpha.socket, "jobs": 1, "clients": 2, "state": "ready"}
        for key, value in expected.items():
            self.assertEqual(str(status[key]), str(value), key)
        table = self.ruedactl("status")
        for text in ("alpha", str(alpha.pid), alpha.addresses["control"], "ready"):
            self.assertIn(text, table)
        # The command also works over the network, as an operator elsewhere would use it.
        run = self.start([harness.program("ruedactl"), "--address", alpha.addresses["control"], "--json", "status"])
        self.assertEqual(run.exit_code(), 0, run.output())
        self.assertEqual(json.loads(run.output())["node_id"], "alpha")

    def test_jobs(self):
        [job] = json.loads(self.ruedactl("--json", "jobs"))["jobs"]
        expected = {"state": "running", "world_size": 3, "local_size": 2, "attached": 2, "nodes": 2,
                    "coordinator": "alpha", "coordination": "locked", "bytes_reduced": 20 * 50000 * 4}
        for key, value in expected.items():
            self.assertEqual(str(job[key]), str(value), key)
        self.assertGreater(int(job["operations"]), 0)
        table = self.ruedactl("jobs")
        for text in (job["job_id"], "running", "locked"):
            self.assertIn(text, table)

    def test_peers(self):
        alpha, beta = self.daemons
        sent = alpha.metric("rueda_network_sent_bytes_total")
        [peer] = json.loads(self.ruedactl("--json", "peers"))["peers"]
        self.assertEqual((peer["node_id"], peer["state"], peer["transport"]), ("beta", "connected", "tcp"))
        self.assertEqual(int(peer["data_bytes_sent"]), sent)
        self.assertIn("beta", self.ruedactl("peers"))
        run = self.start([harness.program("ruedactl"), "--socket", beta.socket, "--json", "peers"])
        self.assertEqual(run.exit_code(), 0, run.output())
        [peer] = json.loads(run.output())["peers"]
        self.assertEqual((peer["node_id"], peer["state"]), ("alpha", "connected"))


def frame(kind, flags, stream, payload=b""):
    """Returns one frame of HTTP/2 (RFC 9113, section 4.1)."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name, value):
    """Returns a header without compression (RFC 7541, section 6.2.2)."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


class GrpcTest(IntegrationTest):

    def call(self, port, path, message):
        """Returns what comes back on a unary call, as the bytes of all DATA frames."""
        headers = b"".join(literal(*pair) for pair in ((b":method", b"POST"), (b":scheme", b"http"), (b":path", path),
                                                       (b":authority", b"x"), (b"te", b"trailers"),
                                                       (b"content-type", b"application/grpc")))
        body = struct.pack(">BI", 0, len(message)) + message
        data = b""
        with socket.create_connection(("127.0.0.1", port), harness.PATIENCE_S) as connection:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0) + frame(1, 4, 1, headers) +
                               frame(0, 1, 1, body))
            stream = connection.makefile("rb")
            while True:
                head = stream.read(9)
                self.assertEqual(len(head), 9, "the daemon closed the connection")
                size = int.from_bytes(head[:3], "big")
                kind, flags, number = struct.unpack(">BBI", head[3:])
                payload = stream.read(size)
                if number == 1 and kind == 0:
                    data += payload
                if number == 1 and flags & 1 and kind in (0, 1):
                    return data

    def test_health_and_reflection(self):
        [daemon] = self.start_daemons("alpha")
        port = daemon.port("control")
        # The answer is HealthCheckResponse{status: SERVING}.
        self.assertEqual(self.call(port, b"/grpc.health.v1.Health/Check", b"")[5:], b"\x08\x01")
        # The request is ServerReflectionRequest{list_services: "*"}.
        services = self.call(port, b"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", b"\x3a\x01*")
        for service in (b"rueda.v1.Control", b"rueda.v1.Admin", b"grpc.health.v1.Health"):
            self.assertIn(service, services)


class StopTest(IntegrationTest):

    def test_ready_until_the_end(self):
        [daemon] = self.start_daemons("alpha")
        self.assertEqual(daemon.get("/readyz")[0], 200)
        daemon.send(signal.SIGTERM)
        self.assertEqual(daemon.exit_code(), 0, daemon.output())
        self.assertRegex(daemon.output(), "stopping on SIGTERM")


if __name__ == "__main__":
    harness.main()
