#!/usr/bin/python3
"""Rueda and its peers side by side, on this machine, in one run.

Every round measures each side once, in alternating order, with the same sizes, ranks and number of
iterations (float32, sum, in place; times are medians of the slowest rank). What is printed is the
median over the rounds, and the ratio of the sides round by round with its spread. The limits of the
machine are measured in the same run. A round in which the machine was busy with something else is
repeated.

--model compares a training step: each tensor of the model is a submission of its own for Rueda, in an
arena; Gloo gets all of them as one flat buffer, in one all-reduce. --coordination measures Rueda once a
mode; the first one is compared with the others, too.

Exit codes: 0; 1 an error or a wrong result; 2 a wrong command line; 3 a ratio to a peer below --require-ratio.
"""

import argparse
import json
import os
import signal
import statistics
import sys
from pathlib import Path

from comparing.machine import NoiseMeter, congestion_control
from comparing.processes import CompareError
from comparing.sides import Gloo, Rueda, measure_limits

NOISE_LIMIT_CORES = 0.10
# As bench/models.cc has them, in float32.
MODELS = {
    "googlenet": {"tensors": 187, "bytes": 4 * 13_004_888},
    "resnet50": {"tensors": 161, "bytes": 4 * 25_557_032},
    "small1000": {"tensors": 1000, "bytes": 1000 * 1024},
    "vgg16": {"tensors": 32, "bytes": 4 * 138_357_544},
}


# --- Rounds and what they say -----------------------------------------------------------------


def measure_quietly(side, work, log):
    """Repeats a disturbed run, a few times; a machine that is never quiet is said to be so."""
    for attempt in range(work.repeats + 1):
        meter = NoiseMeter()
        results = side.measure(work)
        noise = meter.cores()
        disturbed = noise > NOISE_LIMIT_CORES
        log(f"  {side.name}: " + ", ".join(f"{r['time_us']:.0f} us" for r in results) +
            f" (noise {noise:.2f} cores{', disturbed' if disturbed else ''})")
        if not disturbed:
            break
    return {"results": results, "noise_cores": noise, "disturbed": disturbed, "attempts": attempt + 1}


def run_rounds(sides, work, log):
    """A list of rounds, each {side name: measure_quietly's dict}; every other one runs backwards."""
    rounds = []
    for number in range(work.rounds):
        log(f"round {number + 1} of {work.rounds}")
        order = sides if number % 2 == 0 else list(reversed(sides))
        rounds.append({side.name: measure_quietly(side, work, log) for side in order})
    return rounds


def summarize(rounds, sizes, ours, peers):
    """One dict a size: the medians of each side, and ours against each peer, round by round."""
    rows = []
    for i, size in enumerate(sizes):
        def values(name, key):
            found = [one[name]["results"][i].get(key) for one in rounds]
            return [value for value in found if value is not None]

        row = {"bytes": size, "sides": {}, "ratios": {}}
        for name in [ours, *peers]:
            cpu = values(name, "cpu_s_per_GB")
            row["sides"][name] = {
                "time_us": statistics.median(values(name, "time_us")),
                "cpu_s_per_GB": statistics.median(cpu) if cpu else None,
            }
            for key in ("busbw_GBps", "order_messages_per_step"):  # where the side has it
                if values(name, key):
                    row["sides"][name][key] = statistics.median(values(name, key))
        for peer in peers:
            ratios = [b / a for a, b in zip(values(ours, "time_us"), values(peer, "time_us"))]
            row["ratios"][peer] = {
                "median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}
        rows.append(row)
    return rows


def report_markdown(report):
    setup, limits = report["setup"], report["limits"]
    names = list(report["rows"][0]["sides"])
    what = ""
    if setup["model"]:
        what = (f"A step of {setup['model']} ({setup['tensors']} tensors; one flat buffer for Gloo) with ")
    lines = [
        f"{what}{setup['np']} ranks on {setup['nodes']} nodes of this machine, float32 sum in place, "
        f"{setup['iters']} iterations, {setup['rounds']} alternating rounds. TCP congestion control of "
        f"all sides: {setup['congestion']} (the system's).",
        "",
        "| bytes | " + " | ".join(f"{name} µs | {name} CPU s/GB" for name in names) + " | ratio (min..max) |",
        "|---|" + "---|---|" * len(names) + "---|",
    ]
    for row in report["rows"]:
        cells = [str(row["bytes"])]
        for name in names:
            side = row["sides"][name]
            cpu = side["cpu_s_per_GB"]
            cells += [f"{side['time_us']:.1f}", "–" if cpu is None else f"{cpu:.2f}"]
        cells.append(", ".join(
            f"{ratio['median']:.2f}× {peer} ({ratio['min']:.2f}..{ratio['max']:.2f})"
            for peer, ratio in row["ratios"].items()))
        lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        f"Limits in the same run: memcpy of 64 MiB {limits['memcpy_1_thread_GBps']:.1f} GB/s with one "
        f"thread, {limits['memcpy_2_threads_GBps']:.1f} with two; loopback TCP one way "
        f"{limits['tcp_one_way_GBps']:.1f} GB/s under {limits['tcp_congestion']}.",
    ]
    for row in report["rows"]:
        counts = [f"{name} {side['order_messages_per_step']:.1f}" for name, side in row["sides"].items()
                  if "order_messages_per_step" in side]
        if counts:
            lines.append("Messages between daemons to agree on the order, a step: " + ", ".join(counts) + ".")
    disturbed = sum(side["disturbed"] for one in report["rounds"] for side in one.values())
    noise = max(side["noise_cores"] for one in report["rounds"] for side in one.values())
    lines.append(f"Other work on the machine: at most {noise:.2f} cores in any run that is counted"
                 + (f"; {disturbed} of them stayed above {NOISE_LIMIT_CORES:.2f} and are to be distrusted."
                    if disturbed else "."))
    if not report["cpu_includes_daemons"]:
        lines.append("Rueda's CPU seconds lack the daemons': they could not be found.")
    return "\n".join(lines) + "\n"


# --- Command line -----------------------------------------------------------------------------


def parse_size(text):
    shift = {"K": 10, "M": 20, "G": 30}.get(text[-1:].upper(), 0)
    digits = text[:-1] if shift else text
    if not digits.isascii() or not digits.isdigit() or (int(digits) << shift) % 4:
        raise argparse.ArgumentTypeError(f"'{text}' is no size of float32s: write 4096, 4K, 64M or 1G")
    return int(digits) << shift


def parse_sizes(text):
    return [parse_size(part) for part in text.split(",")]


def parse_arguments(arguments):
    default_bin = Path(__file__).resolve().parent.parent / "build" / "release" / "bin"
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--np", type=int, default=4, help="ranks (4)")
    parser.add_argument("--nodes", type=int, default=2, help="virtual nodes, for Rueda (2)")
    parser.add_argument("--sizes", type=parse_sizes, default=[64 << 20], help="bytes: 4K,1M,64M (64M)")
    parser.add_argument("--model", choices=sorted(MODELS), help="a step of this model, instead of --sizes")
    parser.add_argument("--coordination", type=lambda text: text.split(","), default=[None], metavar="MODES",
                        help="modes of Rueda, as in locked,negotiate (the daemon's default alone)")
    parser.add_argument("--rounds", type=int, default=5, help="of all sides (5)")
    parser.add_argument("--iters", type=int, default=20, help="measured iterations of a size (20)")
    parser.add_argument("--warmup", type=int, default=5, help="iterations before them (5)")
    parser.add_argument("--repeats", type=int, default=3, help="of a disturbed run, at most (3)")
    parser.add_argument("--congestion", choices=["system", "reno"], default="system",
                        help="TCP congestion control of all sides; reno sets the system's during the "
                             "run, and needs root")
    parser.add_argument("--require-ratio", type=float, metavar="X",
                        help="exit with 3 when a median ratio to a peer, which is no mode of Rueda, is "
                             "below X")
    parser.add_argument("--timeout-s", type=int, default=600, help="for one run of one side (600)")
    parser.add_argument("--bin-dir", default=default_bin, help=f"with ruedarun and rueda-bench ({default_bin})")
    parser.add_argument("--json", metavar="FILE", help="write everything measured")
    parser.add_argument("--markdown", metavar="FILE", help="write the table")
    options = parser.parse_args(arguments)
    for name in ("np", "nodes", "rounds", "iters"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1")
    if options.nodes > options.np:
        parser.error(f"--nodes {options.nodes} is more than --np {options.np}")
    if options.model:
        options.sizes = [MODELS[options.model]["bytes"]]
    return options


def compare(options, log):
    sides = [*(Rueda(options.bin_dir, mode) for mode in options.coordination), Gloo()]
    with congestion_control(options.congestion) as congestion:
        log(f"TCP congestion control of all sides: {congestion}")
        limits = measure_limits(options.bin_dir)
        rounds = run_rounds(sides, options, log)
    ours = sides[0].name
    return {
        "setup": {"np": options.np, "nodes": options.nodes, "iters": options.iters,
                  "warmup": options.warmup, "rounds": options.rounds, "congestion": congestion,
                  "model": options.model, "cpus": os.cpu_count(),
                  "tensors": MODELS[options.model]["tensors"] if options.model else None},
        "limits": limits,
        "rows": summarize(rounds, options.sizes, ours, [side.name for side in sides[1:]]),
        "cpu_includes_daemons": all(
            result["cpu_includes_daemons"] for one in rounds for side in sides if isinstance(side, Rueda)
            for result in one[side.name]["results"]),
        "peers": [side.name for side in sides if not isinstance(side, Rueda)],
        "rounds": rounds,
    }


def main(arguments=None):
    options = parse_arguments(arguments)
    # A SIGTERM must pass through the blocks that put things back.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        report = compare(options, lambda text: print(text, file=sys.stderr, flush=True))
    except CompareError as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return 1
    table = report_markdown(report)
    print(table, end="")
    if options.json:
        Path(options.json).write_text(json.dumps(report, indent=2) + "\n")
    if options.markdown:
        Path(options.markdown).write_text(table)
    ratios = [row["ratios"][peer]["median"] for row in report["rows"] for peer in report["peers"]]
    if options.require_ratio is not None and min(ratios) < options.require_ratio:
        print(f"compare.py: the ratio {min(ratios):.2f} is below {options.require_ratio}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
