#!/usr/bin/python3
"""Measures a message from one rank to another by ping-pong: with rueda.send and rueda.recv, and beside them, in the same run and in turn,
torch.distributed's send and recv over Gloo. The ranks are on one node, then on two virtual nodes; Gloo's go over TCP in both cases. The
output is Markdown: medians over the rounds of what one way takes, and Gloo's time over Rueda's.

    bench/send_recv.py
    bench/send_recv.py --sizes 4K 16M --rounds 9

Exit codes: 0; 1 an error or a wrong result; 2 a wrong command line."""

import argparse
import json
import os
import re
import socket
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUFFIXES = {"": 1, "K": 1 << 10, "M": 1 << 20}
MOST_MESSAGES, MOST_BYTES = 1000, 1 << 29  # of one measurement
TIMEOUT_S = 120


def bytes_of(text):
    """Returns the number that 4K or 64M stands for."""
    found = re.fullmatch(r"(\d+)([KM]?)", text)
    if found is None or int(found.group(1)) == 0:
        raise argparse.ArgumentTypeError(f"{text} is not a size such as 4K or 64M")
    return int(found.group(1)) * SUFFIXES[found.group(2)]


def run(options, size, nodes, way):
    """Returns what a message takes, in seconds."""
    bytes_each = bytes_of(size)
    number = max(10, min(MOST_MESSAGES, MOST_BYTES // bytes_each // 2))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "client" / "python"), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
           "RUEDA_LIBRARY": str(options.build / "lib" / "librueda.so")}
    command = [str(options.build / "bin" / "ruedarun"), "-np", "2", *(["--virtual-nodes", "2"] if nodes == 2 else []), options.python,
               str(ROOT / "bench" / "send_recv_rank.py"), way, str(bytes_each), str(number)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    told = re.findall(r"\{.*\}", done.stdout + done.stderr)
    if done.returncode != 0 or len(told) != 1:
        sys.exit(f"{size}, {nodes} nodes, {way}: {done.stdout}{done.stderr}")
    return json.loads(told[0])["seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["4", "4K", "256K", "1M", "16M"], help="of a message (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each kind, in turn (%(default)s)")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release", help="the build (%(default)s)")
    parser.add_argument("--python", default="/usr/bin/python3", help="a Python with PyTorch (%(default)s)")
    options = parser.parse_args()
    times = defaultdict(list)
    for number in range(options.rounds):
        for size in options.sizes:
            for nodes in (1, 2):
                for way in ("rueda", "gloo"):
                    times[size, nodes, way].append(run(options, size, nodes, way))
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    print("| bytes | Rueda, one node | Gloo over it | Rueda, two nodes | Gloo over it |\n|---|---|---|---|---|")
    for size in options.sizes:
        row = []
        for nodes in (1, 2):
            rueda, gloo = (statistics.median(times[size, nodes, way]) for way in ("rueda", "gloo"))
            row += [f"{rueda * 1e6:.1f} µs", f"{gloo / rueda:.2f} ×"]
        print(f"| {size} | " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
