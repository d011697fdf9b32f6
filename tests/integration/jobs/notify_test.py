#!/usr/bin/python3
"""Tests that systemd is told when a daemon serves and when it stops."""

import os
import signal
import socket

import harness
from harness import IntegrationTest


class NotifyTest(IntegrationTest):

    def listen(self):
        """Returns what systemd gives a unit of Type=notify: a datagram socket."""
        path = os.path.join(self.folder, "notify.sock")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(listener.close)
        listener.bind(path)
        listener.settimeout(harness.PATIENCE_S)
        self.env["NOTIFY_SOCKET"] = path
        return listener

    def test_ready_is_told_once_it_serves_and_stopping_when_it_stops(self):
        listener = self.listen()
        daemon = self.start_daemon("alpha")
        self.assertEqual(listener.recv(4096), b"READY=1")
        self.assertEqual(daemon.get("/readyz")[0], 200)
        daemon.send(signal.SIGTERM)
        self.assertEqual(listener.recv(4096), b"STOPPING=1")
        self.assertEqual(daemon.exit_code(), 0, daemon.output())

    def test_a_daemon_that_cannot_serve_says_nothing(self):
        daemon = self.start_daemon("alpha")
        listener = self.listen()
        other = self.start([harness.program("ruedad"), "--private", "--listen-host", "127.0.0.1", "--node-id", "beta",
                            "--socket", os.path.join(self.folder, "beta.sock"),
                            "--control-port", str(daemon.port("control"))])
        self.assertEqual(other.exit_code(), 1, other.output())
        listener.setblocking(False)
        self.assertRaises(BlockingIOError, listener.recv, 4096)


if __name__ == "__main__":
    harness.main()
