#!/usr/bin/python3
"""Tests daemons whose frames go over gRPC: every collective, death and stillness of a neighbour, daemons that differ, strangers."""

import signal
import socket
import time

import harness
from harness import IntegrationTest, rank

OPERATIONS = harness.amount(100, 200, 40)
LOST_S = 40
FLAGS = ("--transport", "grpc")


class GrpcTransportTest(IntegrationTest):

    def said(self, daemons, ranks, *flags):
        command = [harness.program("integration_parts_rank"), "5", str(OPERATIONS)]
        job = self.start_job(daemons, ranks, command, extra=flags)
        self.assertEqual(job.exit_codes(), [0] * len(ranks), job.output())
        return [line for number in range(sum(ranks)) for line in job.lines_of(number) if line.startswith("ok ")]

    def test_every_collective_gives_the_bits_that_tcp_gives(self):
        ranks = [2, 1, 1]
        over_grpc = self.start_daemons("alpha", "beta", "gamma", arguments=(*FLAGS, "--streams", "2"))
        told = self.said(over_grpc, ranks)
        self.assertEqual(len(told), 4)
        self.assertEqual(self.said(over_grpc, ranks, "--algorithm", "halving-doubling"),
                         self.said(over_grpc, ranks, "--algorithm", "halving-doubling"))
        over_tcp = self.start_daemons("delta", "epsilon", "zeta", arguments=("--transport", "tcp"))
        self.assertEqual(self.said(over_tcp, ranks), told)
        run = self.start([harness.program("ruedactl"), "--socket", over_grpc[0].socket, "status"])
        self.assertEqual(run.exit_code(), 0, run.output())
        self.assertIn("grpc", run.output())

    def loop_on(self, daemons):
        job = self.start_job(daemons, [1] * len(daemons), rank("init", "loop:1000000"))
        for number in range(len(daemons)):
            job.wait_for(number, r"^looping")
        return job

    def assert_lost(self, job, numbers):
        since_s = time.monotonic()
        for number in numbers:
            error = job.wait_for(number, r"^error loop:\S+ (\S+) at (\S+): (.*)$", LOST_S)
            self.assertEqual(error.group(1), "RUEDA_ERR_NODE_LOST", error.group(0))
        self.assertLess(time.monotonic() - since_s, LOST_S)

    def test_a_neighbour_that_is_killed_or_stands_still_is_found(self):
        daemons = self.start_daemons("alpha", "beta", "gamma", arguments=FLAGS)
        job = self.loop_on(daemons)
        daemons[1].send(signal.SIGKILL)
        self.assert_lost(job, (0, 2))
        job.exit_codes()
        daemons[1] = self.start_daemon("delta", *FLAGS)
        job = self.loop_on(daemons)
        daemons[1].send(signal.SIGSTOP)
        self.assert_lost(job, (0, 2))
        daemons[1].send(signal.SIGCONT)
        job.exit_codes()

    def test_daemons_that_differ_are_told_so(self):
        daemons = [self.start_daemon("alpha", *FLAGS), self.start_daemon("beta", "--transport", "tcp")]
        job = self.start_job(daemons, [1, 1], rank("init", "steps:1:1000"))
        self.assertNotIn(0, job.exit_codes())
        self.assertIn("has for ruedad --transport grpc on node alpha and another than grpc on node beta", job.output())

    def test_strangers_at_the_data_port_are_turned_away(self):
        daemon, other = self.start_daemons("alpha", "beta", arguments=FLAGS)
        port = daemon.port("data")
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
        strangers = []
        for greeting in (b"", b"GET / HTTP/1.1\r\n\r\n", preface, b"\xff" * 4096) * 40:
            one = socket.create_connection(("127.0.0.1", port))
            one.sendall(greeting)
            strangers.append(one)
        job = self.start_job([daemon, other], [1, 1], rank("init", "steps:20:1000", "shutdown"))
        self.assertEqual(job.exit_codes(), [0, 0], job.output())
        for one in strangers:  # each is closed by now, or soon
            one.settimeout(harness.amount(30, 30))
            try:
                while one.recv(4096):
                    pass
            except ConnectionError:
                pass
            one.close()


if __name__ == "__main__":
    harness.main()
