"""Makes the places where the nodes of a comparison are: loopback, or network namespaces that are joined.

A namespace has a TCP congestion control of its own, so all sides get the same one without a change to the system. Namespaces need
root."""

import contextlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .processes import CompareError
from .work import rate_bytes_per_s

CONGESTION_SYSCTL = "/proc/sys/net/ipv4/tcp_congestion_control"


@dataclass(frozen=True)
class Node:
    address: str = "127.0.0.1"
    interface: str = "lo"
    netns: str = ""  # the namespace's name; empty: the system's own network

    @property
    def netns_file(self):
        return f"/run/netns/{self.netns}"

    def command(self, words):
        """Returns the command that does the same on this node."""
        words = [str(word) for word in words]
        return ["nsenter", f"--net={self.netns_file}", *words] if self.netns else words

    def place(self):
        """Returns the node in the form that rueda-bench wants."""
        return f"{self.address}@{self.netns_file}" if self.netns else self.address


@dataclass(frozen=True)
class Network:
    nodes: tuple
    is_joined: bool  # true: each node has a network of its own
    text: str

    def congestion(self):
        return run(self.nodes[0].command(["cat", CONGESTION_SYSCTL])).strip()

    def places(self):
        return ",".join(node.place() for node in self.nodes)


@contextlib.contextmanager
def open_network(nodes, congestion="system", is_joined=False, rate=None):
    """Yields a Network of so many nodes; everything that was set up for it is gone afterwards."""
    if not is_joined and congestion == "system":
        yield Network((Node(),) * nodes, False, "loopback")
        return
    with contextlib.ExitStack() as stack:
        if is_joined:
            made = join_nodes(stack, nodes, rate)
            text = "namespaces joined by veth" + (f", each way of each node shaped to {rate} by tbf" if rate else "")
        else:
            made = (Node(netns=add_namespace(stack, "lo")),) * nodes
            text = "loopback"
        if congestion != "system":
            for node in set(made):
                set_congestion(node, congestion)
        yield Network(made, is_joined, text)


def run(words):
    if not shutil.which(words[0]):
        raise CompareError(f"{words[0]} is not installed: deploy/packages.sh test")
    done = subprocess.run(words, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        hint = "" if os.geteuid() == 0 else "; run as root, or without --netns and --congestion"
        raise CompareError(f"{' '.join(words)}: {done.stderr.strip()}{hint}")
    return done.stdout


def add_namespace(stack, name):
    name = f"rueda-{os.getpid()}-{name}"
    run(["ip", "netns", "add", name])
    stack.callback(run, ["ip", "netns", "del", name])
    run(["ip", "-n", name, "link", "set", "lo", "up"])
    return name


def set_congestion(node, congestion):
    try:
        run(node.command(["sh", "-c", f'echo "$0" > {CONGESTION_SYSCTL}', congestion]))
    except CompareError as error:
        known = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().strip()
        raise CompareError(f"--congestion {congestion} cannot be had; the kernel has {known} ({error})") from error


def join_nodes(stack, nodes, rate):
    """Makes a bridge in a namespace, with each node at a cable of its own, as at a switch."""
    switch = add_namespace(stack, "switch")
    run(["ip", "-n", switch, "link", "add", "bridge", "type", "bridge"])
    run(["ip", "-n", switch, "link", "set", "bridge", "up"])
    made = []
    for index in range(nodes):
        node = Node(f"10.77.0.{index + 1}", "eth0", add_namespace(stack, f"node{index}"))
        port = f"port{index}"
        run(["ip", "-n", node.netns, "link", "add", "name", node.interface, "type", "veth", "peer", "name", port,
             "netns", switch])
        run(["ip", "-n", switch, "link", "set", port, "master", "bridge", "up"])
        run(["ip", "-n", node.netns, "addr", "add", f"{node.address}/24", "dev", node.interface])
        run(["ip", "-n", node.netns, "link", "set", node.interface, "up"])
        if rate:
            shape(node.netns, node.interface, rate)
            shape(switch, port, rate)
        made.append(node)
    return tuple(made)


def shape(netns, interface, rate):
    run(["tc", "-n", netns, "qdisc", "add", "dev", interface, "root", "tbf", "rate", rate,
         "burst", str(burst_bytes(rate)), "latency", "20ms"])


def burst_bytes(rate):
    """Returns the size of the shaper's bucket: twice what the link may send between two ticks of a kernel at 250 Hz, and at least
    two segments of TSO."""
    return max(128 << 10, rate_bytes_per_s(rate) * 2 // 250)
