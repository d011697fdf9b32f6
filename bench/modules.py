#!/usr/bin/python3
"""What pipelining (P) and fusion (F) bring to a training step, each by itself and together, with gradients reduced by
node or by device, in a ring or centrally: every combination, on virtual nodes of this machine, in turn. Prints
Markdown: the median over the rounds of the median step of the slowest rank, in milliseconds, and beside it the ratio to
no optimisation.

    bench/modules.py                        # 4 ranks on 2 nodes
    bench/modules.py --only node/ring --rounds 5

P is RUEDA_TORCH_OVERLAP: gradients are reduced while others are computed, not after all are. F is the fusion
threshold: without it every tensor is an operation of its own. By node or by device is --reducer, ring or central
--algorithm of ruedarun. All combinations must come to the same loss.

Exit codes: 0; 1 an error or a wrong result; 2 a wrong command line.
"""

import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON = "/usr/bin/python3"
MODULES = ("none", "P", "F", "P+F")
REDUCERS = ("node", "device")
ALGORITHMS = ("ring", "central")
WAYS = tuple(f"{reducer}/{algorithm}" for reducer, algorithm in itertools.product(REDUCERS, ALGORITHMS))
# The order of additions differs between the ways, and float32 sums with it.
LOSS_TOLERANCE = 1e-4
PATIENCE_S = 300


class ModulesError(Exception):
    """What went wrong, in words for the user."""


def command_of(options, modules, way):
    """(command line, variables) of a combination."""
    reducer, algorithm = way.split("/")
    command = [str(options.build / "bin" / "ruedarun"), "--no-prefix", "-np", str(options.ranks),
               "--virtual-nodes", str(options.nodes), "--reducer", reducer, "--algorithm", algorithm]
    if "F" not in modules.split("+"):
        command += ["--fusion-threshold", "0"]
    command += [PYTHON, str(ROOT / "bench" / "modules_rank.py"), "--layers", str(options.layers),
                "--width", str(options.width), "--steps", str(options.steps), "--warmup", str(options.warmup)]
    return command, {"RUEDA_TORCH_OVERLAP": "1" if "P" in modules.split("+") else "0"}


def run(options, modules, way):
    """{"seconds": ..., "loss": ...} of one job."""
    command, variables = command_of(options, modules, way)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RUEDA_", "HOROVOD_"))}
    environment = {**kept, "PYTHONPATH": str(ROOT / "client" / "python"),
                   "RUEDA_LIBRARY": str(options.build / "lib" / "librueda.so"), **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    found = re.search(r"^\{.*\}$", done.stdout, re.MULTILINE)
    if done.returncode != 0 or not found:
        raise ModulesError(f"{modules}, {way} failed with {done.returncode}:\n{done.stdout}{done.stderr}")
    return json.loads(found.group())


def measure(options):
    """Step times, in seconds, by (modules, way): one a round, all combinations in turn."""
    times = defaultdict(list)
    first = None
    for number, (modules, way) in itertools.product(range(options.rounds),
                                                    itertools.product(MODULES, options.only)):
        result = run(options, modules, way)
        first = result["loss"] if first is None else first
        if not abs(result["loss"] - first) <= LOSS_TOLERANCE:
            raise ModulesError(f"{modules}, {way} came to the loss {result['loss']}, the first one to {first}")
        times[modules, way].append(result["seconds"])
        print(f"round {number + 1}: {modules}, {way}: {result['seconds'] * 1e3:.2f} ms", file=sys.stderr, flush=True)
    return times


def table(times, ways):
    """Markdown of the medians."""
    lines = ["| modules | " + " | ".join(way.replace("/", ", ") for way in ways) + " |", "|---" * (len(ways) + 1) + "|"]
    for modules in MODULES:
        cells = []
        for way in ways:
            median = statistics.median(times[modules, way])
            cells.append(f"{median * 1e3:.2f} ({median / statistics.median(times['none', way]):.2f})")
        lines.append(f"| {modules} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release", help="has bin/ and lib/")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--nodes", type=int, default=2, help="virtual nodes")
    parser.add_argument("--layers", type=int, default=40)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--steps", type=int, default=40, help="measured, in each job")
    parser.add_argument("--warmup", type=int, default=10, help="steps before them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=WAYS, default=WAYS, metavar="REDUCER/ALGORITHM")
    options = parser.parse_args(arguments)
    if min(options.ranks, options.nodes, options.layers, options.width, options.steps, options.rounds) < 1:
        parser.error("all numbers must be 1 at least")
    return options


def main():
    options = parse(sys.argv[1:])
    try:
        times = measure(options)
    except (ModulesError, subprocess.TimeoutExpired) as error:
        print(f"modules.py: {error}", file=sys.stderr)
        return 1
    print(f"{options.ranks} ranks on {options.nodes} nodes, {options.layers + 1} layers of {options.width}; "
          f"milliseconds a step (ratio to none), medians of {options.rounds} rounds\n")
    print(table(times, options.only))
    return 0


if __name__ == "__main__":
    sys.exit(main())
