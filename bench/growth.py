#!/usr/bin/python3
"""Measures how the time of an all-reduce grows: with bytes (4 B to 1 GiB, 4 ranks on 2 nodes), with the ranks of one node (1 to
8), with nodes of one rank each (1 to 8 daemons on this machine), and with tensors (a step of 1 to 10,000 of 1 KiB each, 4 ranks
on 2 nodes); and, with the bytes, the memory of Rueda's daemons. The output is Markdown: the medians over the rounds of the median
time of the slowest rank, in microseconds. Results are checked, and disturbed runs repeated, as in compare.py.

Exit codes: 0; 1 an error or a wrong result; 2 a wrong command line."""

import argparse
import json
import os
import signal
import statistics
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from comparing import plot
from comparing.arguments import check, make_parser
from comparing.machine import NOISE_LIMIT_CORES, require_quiet
from comparing.network import open_network
from comparing.processes import CompareError
from comparing.programs import read_model
from comparing.report import number, table
from comparing.rounds import measure_quietly
from comparing.sides import make_sides
from comparing.work import Work, format_size, parse_size

KINDS = {
    "bytes": "bytes of a rank's buffer; 4 ranks on 2 nodes",
    "ranks": "ranks of one node",
    "nodes": "nodes of one rank each",
    "tensors": "tensors of 1 KiB each in a step; 4 ranks on 2 nodes",
}
# Each table has the unit of what is measured, and what it grows with.
TABLES = {
    **{kind: ("time, µs", label) for kind, label in KINDS.items()},
    "memory": ("MiB resident that the largest daemon shares with nobody", KINDS["bytes"]),
}
IN_BYTES = ("bytes", "memory")
SIZES = [4 << 10, 1 << 20, 64 << 20]  # for the tables in which ranks or nodes grow


@dataclass(frozen=True)
class Point:
    kind: str
    x: int
    ranks: int
    nodes: int
    sizes: tuple = ()
    model: str = ""


def points(options):
    """Yields everything that is to be measured, one kind after the other."""
    wanted = set(options.kind)
    if "bytes" in wanted:
        size = 4
        while size <= options.max_bytes:
            yield Point("bytes", size, 4, 2, (size,))
            size *= 4
    if "ranks" in wanted:
        for ranks in range(1, options.max_ranks + 1):
            yield Point("ranks", ranks, ranks, 1, tuple(SIZES))
    if "nodes" in wanted:
        for nodes in range(1, options.max_nodes + 1):
            yield Point("nodes", nodes, nodes, nodes, tuple(SIZES))
    if "tensors" in wanted:
        tensors = 1
        while tensors <= options.max_tensors:
            yield Point("tensors", tensors, 4, 2, model=f"small{tensors}")
            tensors *= 10


def make_work(point, options):
    work = Work(ranks=point.ranks, nodes=point.nodes, sizes=list(point.sizes), iters=options.iters,
                warmup=options.warmup, timeout_s=options.timeout_s)
    if point.model:
        model = read_model(options.bin_dir, point.model)
        work.model, work.sizes, work.shapes = point.model, [model["bytes"]], model["shapes"]
    return work


def curve_name(point, side, size):
    return f"{side.name}, {format_size(size)}" if point.kind in ("ranks", "nodes") else side.name


def measure(options, log):
    """Returns {table: {curve: [[x, median]]}}, the most noise in a run that counts, and the sides that were left out."""
    found = defaultdict(lambda: defaultdict(list))
    left_out, noise = {}, 0.0
    with open_network(max(options.max_nodes, 2), options.congestion) as network:
        congestion = network.congestion()
        sides = make_sides(options.side, options.bin_dir)
        for point in points(options):
            work = make_work(point, options)
            values = defaultdict(list)
            log(f"{point.kind} {point.x}")
            for number_of_round in range(options.rounds):
                for side in sides if number_of_round % 2 == 0 else reversed(sides):
                    why = side.missing(work, network)
                    if why:
                        left_out[f"{side.name} at {point.kind} {point.x}"] = why
                        continue
                    run = measure_quietly(side, work, network, options.repeats, log)
                    noise = max(noise, run["noise_cores"])
                    for result in run["results"]:
                        curve = curve_name(point, side, result["bytes"])
                        values[point.kind, curve].append(result.get("time_us"))
                        memory = result.get("daemon_memory_bytes")
                        if point.kind == "bytes" and memory:
                            values["memory", curve].append(memory / (1 << 20))
            for (kind, curve), all_rounds in values.items():
                known = [value for value in all_rounds if value is not None]
                found[kind][curve].append([point.x, statistics.median(known) if known else None])
    setup = {"cpus": os.cpu_count(), "congestion": congestion, "rounds": options.rounds}
    return {"setup": setup, "curves": found, "noise_cores": noise, "left_out": left_out}


def markdown(report):
    setup = report["setup"]
    lines = [f"A machine with {setup['cpus']} CPUs, loopback under {setup['congestion']}, medians of {setup['rounds']} "
             "rounds."]
    for kind, (unit, label) in TABLES.items():
        curves = report["curves"].get(kind)
        if not curves:
            continue
        places = sorted({x for curve in curves.values() for x, _ in curve})
        values = {name: dict(curve) for name, curve in curves.items()}
        rows = []
        for x in places:
            times = [values[name].get(x) for name in curves]
            rows.append([format_size(x) if kind in IN_BYTES else str(x),
                         *("–" if time is None else number(time) for time in times)])
        lines += ["", f"{unit}:", "", *table([label, *curves], rows)]
    said = f"Other work on the machine: at most {report['noise_cores']:.2f} cores in any run that counts"
    lines += ["", said + ("." if report["noise_cores"] <= NOISE_LIMIT_CORES else ": distrust the numbers.")]
    lines += [f"Left out: {what} ({why})." for what, why in report["left_out"].items()]
    return "\n".join(lines) + "\n"


def draw(report, path):
    pyplot = plot.require_matplotlib()
    drawn = [kind for kind in TABLES if report["curves"].get(kind)]
    figure, all_axes = pyplot.subplots(len(drawn), 1, figsize=(8, 4.5 * len(drawn)), squeeze=False)
    for axes, kind in zip(all_axes.flat, drawn):
        unit, label = TABLES[kind]
        plot.draw(axes, report["curves"][kind], label, unit, sizes_below=kind in IN_BYTES)
    plot.save(figure, path)
    pyplot.close(figure)


def parse_kinds(text):
    kinds = text.split(",")
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise argparse.ArgumentTypeError(f"nothing grows by '{unknown[0]}': take of {', '.join(KINDS)}")
    return kinds


def parse_arguments(arguments):
    parser = make_parser(__doc__, rounds=3)
    parser.add_argument("--kind", type=parse_kinds, default=list(KINDS), metavar="KINDS",
                        help=f"what grows, separated by commas: {', '.join(KINDS)} (all)")
    parser.add_argument("--max-bytes", type=parse_size, default=1 << 30, help="1G")
    parser.add_argument("--max-ranks", type=int, default=8, help="8")
    parser.add_argument("--max-nodes", type=int, default=8, help="8")
    parser.add_argument("--max-tensors", type=int, default=10_000, help="10000")
    parser.add_argument("--svg", metavar="FILE", help="draw all curves")
    options = parser.parse_args(arguments)
    check(parser, options, "max_bytes", "max_ranks", "max_nodes", "max_tensors")
    options.side = options.side or ["rueda"]
    return options


def main(arguments=None):
    options = parse_arguments(arguments)
    # A SIGTERM must pass through the blocks that restore the machine's state.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))

    def log(text):
        print(text, file=sys.stderr, flush=True)

    try:
        if options.svg:
            plot.require_matplotlib()
        require_quiet(options.busy_ok, log)
        report = measure(options, log)
        print(markdown(report), end="")
        if options.json:
            Path(options.json).write_text(json.dumps(report, indent=2) + "\n")
        if options.svg:
            draw(report, options.svg)
    except (CompareError, OSError) as error:
        print(f"growth.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
