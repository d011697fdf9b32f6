#!/usr/bin/python3
"""Measures what pipelining (P) and fusion (F) bring to a training step, each by itself and together, with gradients reduced by
node or by device, in a ring or centrally: every combination, on virtual nodes of this machine, in turn. The output is Markdown:
the median over the rounds of the median step of the slowest rank, in milliseconds, and beside it the ratio to no optimisation.

    bench/modules.py                        # 4 ranks on 2 nodes
    bench/modules.py --only node/ring --rounds 5

P is RUEDA_TORCH_OVERLAP: gradients are reduced while others are computed, and not after all are. F is the fusion threshold:
without it every tensor is an operation of its own. --reducer of ruedarun chooses node or device, --algorithm ring or central. All
combinations must come to the same loss.

Exit codes: 0; 1 an error or a wrong result; 2 a wrong command line."""

import itertools
import json
import re
import statistics
import sys
from collections import defaultdict

from comparing.training_jobs import PYTHON, ROOT, JobError, parse_positive, parser_of, report, ruedarun, run_job

MODULES = ("none", "P", "F", "P+F")
REDUCERS = ("node", "device")
ALGORITHMS = ("ring", "central")
WAYS = tuple(f"{reducer}/{algorithm}" for reducer, algorithm in itertools.product(REDUCERS, ALGORITHMS))
# The order of additions differs between the ways, and so do float32 sums.
LOSS_TOLERANCE = 1e-4


def command_of(options, modules, way):
    """Returns (command line, variables) of a combination."""
    reducer, algorithm = way.split("/")
    command = [*ruedarun(options), "--reducer", reducer, "--algorithm", algorithm]
    if "F" not in modules.split("+"):
        command += ["--fusion-threshold", "0"]
    command += [PYTHON, str(ROOT / "bench" / "modules_rank.py"), "--layers", str(options.layers),
                "--width", str(options.width), "--steps", str(options.steps), "--warmup", str(options.warmup)]
    return command, {"RUEDA_TORCH_OVERLAP": "1" if "P" in modules.split("+") else "0"}


def run(options, modules, way):
    """Returns {"seconds": ..., "loss": ...} of one job."""
    command, variables = command_of(options, modules, way)
    said = run_job(command, options, f"{modules}, {way}", variables)
    found = re.search(r"^\{.*\}$", said, re.MULTILINE)
    if not found:
        raise JobError(f"{modules}, {way} printed no result:\n{said}")
    return json.loads(found.group())


def measure(options):
    """Returns step times, in seconds, by (modules, way): one a round, with all combinations in turn."""
    times = defaultdict(list)
    first = None
    for number, (modules, way) in itertools.product(range(options.rounds),
                                                    itertools.product(MODULES, options.only)):
        result = run(options, modules, way)
        first = result["loss"] if first is None else first
        if not abs(result["loss"] - first) <= LOSS_TOLERANCE:
            raise JobError(f"{modules}, {way} came to the loss {result['loss']}, the first one to {first}")
        times[modules, way].append(result["seconds"])
        print(f"round {number + 1}: {modules}, {way}: {result['seconds'] * 1e3:.2f} ms", file=sys.stderr, flush=True)
    return times


def table(times, ways):
    """Returns the medians as Markdown."""
    lines = ["| modules | " + " | ".join(way.replace("/", ", ") for way in ways) + " |", "|---" * (len(ways) + 1) + "|"]
    for modules in MODULES:
        cells = []
        for way in ways:
            median = statistics.median(times[modules, way])
            cells.append(f"{median * 1e3:.2f} ({median / statistics.median(times['none', way]):.2f})")
        lines.append(f"| {modules} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def parse(arguments):
    parser = parser_of(__doc__, steps=40, warmup=10, rounds=3)
    parser.add_argument("--layers", type=int, default=40)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--only", nargs="+", choices=WAYS, default=WAYS, metavar="REDUCER/ALGORITHM")
    return parse_positive(parser, arguments, "layers", "width")


def main():
    options = parse(sys.argv[1:])
    print(f"{options.layers + 1} layers of {options.width}; milliseconds a step (ratio to none)")
    return report("modules.py", options, measure, lambda times: table(times, options.only))


if __name__ == "__main__":
    sys.exit(main())
