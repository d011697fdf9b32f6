#!/usr/bin/python3
"""Makes the tables and pictures of docs/scale.md, from what `rueda-sim --sweep --json` prints.

    rueda-sim --sweep --json > sweep.json
    bench/scale.py sweep.json --svg docs/images > tables.md

Exit codes: 0; 1 an error; 2 a wrong command line."""

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path

from comparing import plot
from comparing.processes import CompareError
from comparing.report import table

MODES = ["baseline", "global-sleep", "nonblocking", "scp", "topo", "cached", "locked"]
CURES = ["global-sleep", "nonblocking", "scp", "topo"]
LARGEST = 24576
# These are the paper's numbers, in percent of the baseline's throughput at 24,576 GPUs: of ResNet-50 by cure, of other networks
# the range over the cures (of GoogLeNet their mean and the best).
PAPER_RESNET50 = {"global-sleep": 10, "nonblocking": 16, "scp": 18, "topo": 21}
PAPER_RANGES = {"resnet18": (5, 21), "resnet34": (5, 21), "resnet101": (5, 21), "resnet152": (5, 21),
                "googlenet-aux": (25, 35), "inception3": (10, 18), "vgg16": (2, 6), "alexnet": (-6, -6)}


class Sweep:
    """Holds the lines of a sweep."""

    def __init__(self, lines):
        self.times = {(line["study"], line["model"], line["gpus"], line["mode"]): line
                      for line in lines if "mode" in line}
        self.order = defaultdict(list)
        for line in lines:
            if "mode" not in line:
                self.order[line["study"]].append(line)
        if ("weak", "resnet50", LARGEST, "baseline") not in self.times:
            raise CompareError("this is no whole sweep: rueda-sim --sweep --json")
        self.studies = list(dict.fromkeys(study for study, _, gpus, _ in self.times if gpus == LARGEST))
        self.models = list(dict.fromkeys(model for _, model, _, _ in self.times))

    def at(self, study, model, gpus, mode):
        return self.times.get((study, model, gpus, mode))

    def gain(self, model, mode, study="weak"):
        return 100 * (self.at(study, model, LARGEST, mode)["vs_baseline"] - 1)

    def sizes(self, study, model="resnet50"):
        return sorted(gpus for s, m, gpus, mode in self.times if (s, m, mode) == (study, model, "baseline"))


def percent(value):
    return f"{value:+.1f}"


def resnet50_rows(sweep):
    for mode in MODES:
        line = sweep.at("weak", "resnet50", LARGEST, mode)
        paper = PAPER_RESNET50.get(mode)
        gain = 100 * (line["vs_baseline"] - 1)
        yield [f"`{mode}`", f"{line['step_ms']:.1f}", f"{line['compute_ms']:.1f}", f"{line['data_ms']:.1f}",
               f"{line['coordination_ms']:.1f}", f"{100 * line['coordination_share']:.1f} %",
               f"{1 / line['vs_linear']:.2f}", percent(gain), "" if paper is None else f"+{paper}",
               "" if paper is None else percent(gain - paper), f"{line['order_messages_per_step']:,.0f}",
               f"{line['coordinator_bytes_per_step']:,.0f}"]


def network_rows(sweep):
    for model in sweep.models:
        gains = [sweep.gain(model, mode) for mode in CURES]
        paper = PAPER_RANGES.get(model)
        said = "10, 16, 18, 21" if paper is None else " to ".join(map(str, dict.fromkeys(paper)))
        if model == "googlenet-aux":
            said = "mean 25, best 35"
        baseline = sweep.at("weak", model, LARGEST, "baseline")
        yield [model, f"{1 / baseline['vs_linear']:.2f}", f"{100 * baseline['coordination_share']:.1f} %",
               *map(percent, gains), percent(sum(gains) / len(gains)), said,
               percent(sweep.gain(model, "locked"))]


def scaling_rows(sweep, study):
    for gpus in sweep.sizes(study):
        yield [f"{gpus:,}", *(f"{1 / sweep.at(study, 'resnet50', gpus, mode)['vs_linear']:.2f}" for mode in MODES)]


def sensitivity_rows(sweep):
    for study in sweep.studies:
        if study in ("strong",):
            continue
        name = "as it is" if study == "weak" else study
        baseline, locked = (sweep.at(study, "resnet50", LARGEST, mode) for mode in ("baseline", "locked"))
        shares = {model: 100 * sweep.at(study, model, LARGEST, "locked")["coordination_share"]
                  for model in sweep.models}
        worst = max(shares, key=shares.get)
        yield [name, f"{1 / baseline['vs_linear']:.2f}", f"{100 * baseline['coordination_share']:.1f} %",
               *(percent(sweep.gain("resnet50", mode, study)) for mode in [*CURES, "locked"]),
               f"{100 * locked['coordination_share']:.2f} %", f"{shares[worst]:.2f} % ({worst})"]


def beyond_rows(sweep):
    for mode in MODES:
        line = sweep.at("100,000", "resnet50", 100000, mode)
        yield [f"`{mode}`", f"{line['step_ms']:.0f}", f"{line['data_ms']:.0f}",
               f"{100 * line['coordination_share']:.1f} %", f"{1 / line['vs_linear']:.2f}",
               f"{line['order_messages_per_step']:,.0f}"]


def order_rows(sweep, study, first):
    for line in sweep.order[study]:
        yield [f"{line[first]:,}", f"{line['start_ms']:.2f}", f"{line['first_step_ms']:.2f}",
               f"{line['second_step_ms']:.2f}", f"{line['lock_step_ms']:.2f}", f"{line['locked_ms']:.2f}",
               f"{line['unlock_ms']:.2f}", f"{line['first_step_messages']:,}", f"{line['lock_step_messages']:,}",
               f"{line['locked_messages']:,}", f"{line['unlock_messages']:,}",
               f"{line['unlock_coordinator_messages']:,}"]


ORDER_HEAD = ["start, ms", "1st step", "2nd", "3rd, locks", "locked", "unlocks", "messages: 1st", "3rd", "locked",
              "unlocks", "of them the coordinator's"]


def loss_rows(sweep):
    for line in sweep.order["loss"]:
        yield [f"{line['nodes']:,}", *(f"{line[key]:,.0f}" for key in ("suspected_ms", "sealed_ms", "decided_ms")),
               f"{line['messages']:,}"]


def fail_rows(sweep):
    for line in sweep.order["loss-fail"]:
        yield [f"{line['nodes']:,}", f"{line['all_know_ms']:.2f}", f"{line['messages']:,}"]


def print_tables(sweep):
    cures = [f"`{mode}`" for mode in CURES]
    for title, head, rows in (
            ("ResNet-50 at 24,576 GPUs", ["mode", "step, ms", "compute", "data", "coordination", "share",
                                          "below linear", "gain, %", "paper", "error", "order messages a step",
                                          "coordinator's bytes a step"], resnet50_rows(sweep)),
            ("All networks at 24,576 GPUs", ["network", "baseline below linear", "its coordination", *cures, "mean",
                                             "paper", "`locked`"], network_rows(sweep)),
            ("Weak scaling", ["GPUs", *(f"`{mode}`" for mode in MODES)], scaling_rows(sweep, "weak")),
            ("Strong scaling", ["GPUs", *(f"`{mode}`" for mode in MODES)], scaling_rows(sweep, "strong")),
            ("Sensitivity", ["", "baseline below linear", "its coordination", *cures, "`locked`",
                             "coordination of `locked`", "worst of all networks"], sensitivity_rows(sweep)),
            ("100,000 GPUs", ["mode", "step, ms", "data", "coordination", "below linear", "order messages a step"],
             beyond_rows(sweep)),
            ("First steps", ["nodes", *ORDER_HEAD], order_rows(sweep, "first-steps", "nodes")),
            ("Fan-in", ["fan-in", *ORDER_HEAD], order_rows(sweep, "fan-in", "fan_in")),
            ("Loss of a node", ["nodes", "suspected, ms", "all sealed", "all go on", "messages"], loss_rows(sweep)),
            ("Loss that ends the job", ["nodes", "all know, ms", "messages"], fail_rows(sweep))):
        print(f"### {title}\n")
        print("\n".join(table(head, rows)))
        print()


def draw_scaling(sweep, folder):
    pyplot = plot.require_matplotlib()
    figure, both = pyplot.subplots(1, 2, figsize=(11, 4.5))
    for axes, study in zip(both, ("weak", "strong")):
        curves = {mode: [(gpus, sweep.at(study, "resnet50", gpus, mode)["vs_linear"])
                         for gpus in sweep.sizes(study)] for mode in MODES}
        plot.draw(axes, curves, "GPUs", "throughput over linear")
        axes.set_title(f"ResNet-50, {study} scaling", fontsize="medium")
    plot.save(figure, folder / "scale-resnet50.svg")
    pyplot.close(figure)


def draw_gains(sweep, folder):
    pyplot = plot.require_matplotlib()
    figure, axes = pyplot.subplots(figsize=(10, 4.5))
    width = 0.18
    for place, mode in enumerate(CURES):
        axes.bar([i + (place - 1.5) * width for i in range(len(sweep.models))],
                 [sweep.gain(model, mode) for model in sweep.models], width, label=mode)
    for i, model in enumerate(sweep.models):
        if model == "resnet50":
            axes.plot([i + (place - 1.5) * width for place in range(4)], PAPER_RESNET50.values(), "k_",
                      markersize=12, label="paper")
        else:
            low, high = PAPER_RANGES[model]
            axes.plot([i, i], [low, high], "k_-", markersize=12)
    axes.axhline(0, color="black", linewidth=0.5)
    axes.set_xticks(range(len(sweep.models)), sweep.models, fontsize="small")
    axes.set_ylabel("throughput over the baseline, %")
    axes.legend(fontsize="small")
    plot.save(figure, folder / "scale-gains.svg")
    pyplot.close(figure)


def draw_order(sweep, folder):
    pyplot = plot.require_matplotlib()
    figure, both = pyplot.subplots(1, 2, figsize=(11, 4.5))
    for axes, study, x, label in zip(both, ("first-steps", "fan-in"), ("nodes", "fan_in"),
                                     ("nodes", "fan-in of the tree, 4,096 nodes")):
        names = {"first_step_ms": "first step", "second_step_ms": "second", "lock_step_ms": "third, which locks",
                 "locked_ms": "locked", "unlock_ms": "a step that unlocks"}
        curves = {name: [(line[x], line[key]) for line in sweep.order[study]] for key, name in names.items()}
        plot.draw(axes, curves, label, "ms that agreeing takes")
    plot.save(figure, folder / "scale-order.svg")
    pyplot.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", type=Path, help="what rueda-sim --sweep --json has printed")
    parser.add_argument("--svg", type=Path, metavar="DIR", help="draw the pictures there")
    options = parser.parse_args()
    try:
        sweep = Sweep([json.loads(line) for line in options.sweep.read_text(encoding="utf-8").splitlines()])
        print_tables(sweep)
        if options.svg:
            for draw in (draw_scaling, draw_gains, draw_order):
                draw(sweep, options.svg)
    except (OSError, ValueError, CompareError) as error:
        print(f"scale.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
