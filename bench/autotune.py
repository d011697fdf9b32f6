#!/usr/bin/python3
"""Measures what autotuning brings to a step of a model, and that it costs nothing: Rueda with the defaults, and with what a
search has settled on, over each of the networks. Each round searches first, in a job of its own that records the plan that it
settles on; then short jobs alternate, with the defaults and with that plan, because a machine does not stay as fast as it was for
as long as a search takes.

    bench/autotune.py                                # two nodes over shaped links, then over loopback; needs root
    bench/autotune.py --networks loopback --model small1000

The networks are loopback; netns, which is nodes in network namespaces joined by veth; and a rate such as 1gbit, which is the same
with each link shaped. A step's time is the loop's pace. The output is Markdown: a row a network, with the setting that each
search settled on.

Exit codes: 0; 1 an error, a wrong result, or a search that did not settle; 2 a wrong command line; 3 the median of the ratios to
the defaults is above --require (1.03)."""

import argparse
import csv
import dataclasses
import json
import signal
import statistics
import sys
import tempfile
from pathlib import Path

from comparing import rounds
from comparing.machine import require_quiet
from comparing.network import open_network
from comparing.processes import CompareError
from comparing.programs import default_bin_dir, read_model
from comparing.report import table, with_range
from comparing.sides.rueda import Rueda
from comparing.work import Work, parse_rate

SETTING = ("fusion_bytes", "chunk_bytes", "streams", "cutover")
# The search does not count the steps between two plans: there are at most this many for each step that it measures.
STEPS_BETWEEN = 4


class Defaults(Rueda):

    def __init__(self, bin_dir, streams):
        super().__init__(bin_dir, streams=streams)
        self.name = "defaults"


class Tuned(Rueda):
    """Rueda with the plan that a search has recorded."""

    def __init__(self, bin_dir, streams, plan):
        super().__init__(bin_dir, streams=streams)
        self.name = "autotuned"
        self.flags += ["--plan", str(plan)]


class Search(Rueda):
    """Rueda while it searches. It leaves a log and a plan in the folder."""

    def __init__(self, bin_dir, streams, folder):
        super().__init__(bin_dir, streams=streams)
        self.name = "search"
        self.log, self.plan = Path(folder) / "search.csv", Path(folder) / "plan.json"
        self.flags += ["--autotune", f"--autotune-log={self.log}", f"--record-plan={self.plan}"]


def settled_line(path, search):
    """Returns the line of the log with which the search ended, which must have come before anything was measured."""
    try:
        lines = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    except OSError as error:
        raise CompareError(f"there is no log of a search: {error}") from error
    if not lines or lines[-1]["phase"] != "settled":
        raise CompareError(f"the search had not settled after {search} steps: raise --search")
    windows = sum(not line["verdict"] for line in lines)
    steps = int(lines[-1]["step"]) + STEPS_BETWEEN * windows
    if steps > search:
        raise CompareError(f"the search took up to {steps} steps, and --search is {search}: raise it")
    return lines[-1]


def parse_network(text):
    return text if text in ("loopback", "netns") else parse_rate(text)


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=lambda text: [parse_network(word) for word in text.split(",")],
                        default=["1gbit", "loopback"], help="separated by commas (1gbit,loopback)")
    parser.add_argument("--model", default="resnet50", help="resnet50, vgg16, googlenet-aux or small1000 (resnet50)")
    parser.add_argument("--np", type=int, default=4, help="ranks (4)")
    parser.add_argument("--nodes", type=int, default=2, help="nodes, all on this machine (2)")
    parser.add_argument("--streams", help="TCP streams that the daemons open, for both; the search may use fewer")
    parser.add_argument("--iters", type=int, default=60, help="measured steps of a run (60)")
    parser.add_argument("--warmup", type=int, default=20, help="steps before them (20)")
    parser.add_argument("--search", type=int, default=600, help="steps of a search (600)")
    parser.add_argument("--rounds", type=int, default=3, help="searches (3)")
    parser.add_argument("--pairs", type=int, default=5, help="of runs with the defaults and tuned, after each (5)")
    parser.add_argument("--repeats", type=int, default=1, help="of a disturbed run, at most (1)")
    parser.add_argument("--timeout-s", type=int, default=3600, help="for one run (3600)")
    parser.add_argument("--require", type=float, default=1.03, metavar="X",
                        help="exit with 3 when the autotuned step takes more than X times the defaults' (1.03)")
    parser.add_argument("--bin-dir", default=default_bin_dir(), help="with ruedarun and rueda-bench")
    parser.add_argument("--busy-ok", action="store_true", help="go on though the machine is busy with other work")
    parser.add_argument("--json", metavar="FILE", help="write everything measured")
    options = parser.parse_args(arguments)
    for name in ("np", "nodes", "iters", "search", "rounds", "pairs"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1")
    return options


def measure(options, network_name, model, log):
    """Returns {"ratio": ..., "times": ..., "settled": ...} over one network."""
    is_joined = network_name != "loopback"
    rate = None if network_name in ("loopback", "netns") else network_name
    work = Work(ranks=options.np, nodes=options.nodes, sizes=[model["bytes"]], model=options.model,
                shapes=model["shapes"], iters=options.iters, warmup=options.warmup, timeout_s=options.timeout_s)
    done, settled = [], []
    with open_network(options.nodes, "system", is_joined, rate) as network:
        log(f"over {network.text}")
        for number in range(options.rounds):
            with tempfile.TemporaryDirectory() as folder:
                search = Search(options.bin_dir, options.streams, folder)
                search.measure(dataclasses.replace(work, warmup=options.search, iters=1), network)
                settled.append(settled_line(search.log, options.search))
                log(f"search {number + 1} of {options.rounds}: {described(settled[-1])}")
                sides = [Defaults(options.bin_dir, options.streams), Tuned(options.bin_dir, options.streams, search.plan)]
                done += rounds.run_rounds(sides, work, network, options.pairs, options.repeats, log)
    times = {side.name: [one[side.name]["results"][0]["pace_us"] / 1e3 for one in done] for side in sides}
    ratios = [tuned / plain for plain, tuned in zip(times["defaults"], times["autotuned"])]
    return {"network": network_name, "times_ms": times, "ratios": ratios, "settled": settled, "rounds": done}


def described(line):
    return f"{line['verdict']} ({', '.join(line[key] for key in SETTING)})"


def markdown(options, found):
    lines = [f"A step of {options.model}, {options.np} ranks on {options.nodes} nodes of this machine, {options.iters} "
             f"steps a run, {options.pairs} alternating pairs of runs after each of {options.rounds} searches; "
             f"milliseconds, medians and ranges. Settings: {', '.join(SETTING)}.", ""]
    rows = []
    for one in found:
        spreads = [rounds.spread(values) for values in (*one["times_ms"].values(), one["ratios"])]
        settled = {described(line): None for line in one["settled"]}
        rows.append([one["network"], *map(with_range, spreads), "; ".join(settled)])
    return "\n".join([*lines, *table(["network", "defaults", "autotuned", "ratio", "settled on"], rows)])


def main():
    options = parse(sys.argv[1:])

    def log(text):
        print(text, file=sys.stderr, flush=True)

    # A SIGTERM must pass through the blocks that restore the machine's state.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        require_quiet(options.busy_ok, log)
        model = read_model(options.bin_dir, options.model)
        found = [measure(options, name, model, log) for name in options.networks]
        if options.json:
            Path(options.json).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    except (CompareError, OSError) as error:
        print(f"autotune.py: {error}", file=sys.stderr)
        return 1
    print(markdown(options, found))
    slower = [one["network"] for one in found if statistics.median(one["ratios"]) > options.require]
    if slower:
        print(f"autotune.py: over {', '.join(slower)} a tuned step takes more than {options.require} times the "
              "defaults'", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
