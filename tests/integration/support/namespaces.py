"""Puts nodes into network namespaces of their own, with links between them that can be made slow."""

import contextlib
import itertools
import os
import subprocess

from harness import IntegrationTest

# The bytes per second of a slow link: far below what a busy machine gives the others under a sanitizer.
SLOW = 2_000_000


class NamespacesTest(IntegrationTest):
    """Each node is in a namespace of its own, with a link of its own between each two of them. A machine on which that cannot
    be had skips the test."""

    NODES = 4

    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("network namespaces take root")
        if any(subprocess.run(["which", tool], capture_output=True, check=False).returncode != 0 for tool in ("ip", "tc")):
            self.skipTest("no ip and tc here: install iproute2")
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.spaces = [f"rueda{os.getpid()}-{i}" for i in range(self.NODES)]
        try:
            self.make_network()
        except subprocess.CalledProcessError as error:
            self.skipTest(f"no network of namespaces here: {error.stderr.decode().strip()}")

    @staticmethod
    def run_tool(*words):
        subprocess.run(words, check=True, capture_output=True)

    def make_network(self):
        for i, space in enumerate(self.spaces):
            self.run_tool("ip", "netns", "add", space)
            self.stack.callback(self.run_tool, "ip", "netns", "del", space)
            self.run_tool("ip", "-n", space, "link", "set", "lo", "up")
            self.run_tool("ip", "-n", space, "addr", "add", f"10.77.0.{i + 1}/32", "dev", "lo")
        for a, b in itertools.combinations(range(self.NODES), 2):
            self.run_tool("ip", "-n", self.spaces[a], "link", "add", f"to{b}", "type", "veth", "peer", "name", f"to{a}",
                          "netns", self.spaces[b])
            for here, there in ((a, b), (b, a)):
                self.run_tool("ip", "-n", self.spaces[here], "link", "set", f"to{there}", "up")
                self.run_tool("ip", "-n", self.spaces[here], "route", "add", f"10.77.0.{there + 1}/32", "dev",
                              f"to{there}", "src", f"10.77.0.{here + 1}")

    def shape(self, action, a, b):
        for here, there in ((a, b), (b, a)):
            self.run_tool("tc", "-n", self.spaces[here], "qdisc", action, "dev", f"to{there}", "root", *(
                ["tbf", "rate", f"{8 * SLOW}bit", "burst", "64k", "latency", "100ms"] if action == "add" else []))

    def start_daemon_of(self, number, *arguments):
        """Starts the daemon of a node, whose control port is 28400."""
        return self.start_daemon(f"node{number}", "--control-port", "28400", *arguments, host=f"10.77.0.{number + 1}",
                                 inside=["ip", "netns", "exec", self.spaces[number]])
