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
# The paper's figures are compared from this size on; its strong scaling begins there, and of weak scaling it names no smallest size.
SMALLEST_COMPARED = 96


class Sweep:
    """Holds the lines of a sweep."""

    def __init__(self, lines):
        self.times = {(line["study"], line["model"], line["gpus"], line["mode"]): line
                      for line in lines if "mode" in line}
        self.paper = [line for line in lines if line["study"] == "paper"]
        self.order = defaultdict(list)
        for line in lines:
            if "mode" not in line and line["study"] != "paper":
                self.order[line["study"]].append(line)
        if ("weak", "resnet50", LARGEST, "baseline") not in self.times:
            raise CompareError("this is no whole sweep: rueda-sim --sweep --json")
        self.studies = list(dict.fromkeys(study for study, _, gpus, _ in self.times if gpus == LARGEST))
        self.models = list(dict.fromkeys(model for _, model, _, _ in self.times))

    def at(self, study, model, gpus, mode):
        return self.times.get((study, model, gpus, mode))

    def gain(self, model, mode, study="weak", gpus=LARGEST):
        return 100 * (self.at(study, model, gpus, mode)["vs_baseline"] - 1)

    def gains(self, model, mode, study="weak"):
        """Returns the gains at the sizes that are compared with the paper's."""
        return [self.gain(model, mode, study, gpus) for gpus in self.sizes(study, model) if gpus >= SMALLEST_COMPARED]

    def sizes(self, study, model="resnet50"):
        return sorted(gpus for s, m, gpus, mode in self.times if (s, m, mode) == (study, model, "baseline"))


def percent(value):
    return f"{value:+.1f}"


def share(line, *names):
    return 100 * sum(line[name] for name in names) / line["step_ms"]


def quantity_of(line, quantity):
    """Returns a quantity of the paper's figures, from a line of the sweep."""
    if quantity == "gain, %":
        return 100 * (line["vs_baseline"] - 1)
    if quantity == "below linear":
        return 1 / line["vs_linear"]
    if quantity == "all-reduce, %":
        return share(line, "background_ms", "copy_ms", "allreduce_ms")
    if quantity == "idle, %":
        return 100 * (line["background_ms"] + line["copy_ms"]) / (line["step_ms"] - line["compute_ms"])
    if quantity == "background, %":
        return share(line, "background_ms")
    raise CompareError(f"the paper's quantity '{quantity}' is unknown here")


def simulated(sweep, value):
    """Returns the lowest and the highest of what is simulated of a value of the paper."""
    study = "strong" if value["strong"] else "weak"
    sizes = [gpus for gpus in sweep.sizes(study, value["network"]) if gpus >= SMALLEST_COMPARED]
    found = [quantity_of(sweep.at(study, value["network"], gpus, value["of_mode"]), value["quantity"]) for gpus in sizes]
    over = value["over"]
    if over == "at 24,576 GPUs":
        found = found[-1:]
    elif over == "at best":
        found = [max(found)]
    elif over == "on average":
        found = [sum(found) / len(found)]
    return min(found), max(found)


def miss_of(value, low, high):
    """Returns by how much what is simulated leaves the paper's range, below (negative) or above it."""
    below = min(0, low - value["low"])
    above = max(0, high - value["high"])
    return below if -below > above else above


def between(low, high):
    return f"{low:.1f}" if f"{low:.1f}" == f"{high:.1f}" else f"{low:.1f} to {high:.1f}"


def paper_rows(sweep):
    for value in sweep.paper:
        low, high = simulated(sweep, value)
        said = f"{value['low']:g}" if value["low"] == value["high"] else f"{value['low']:g} to {value['high']:g}"
        study = "strong" if value["strong"] else "weak"
        yield [value["figure"], value["section"], value["network"], f"`{value['of_mode']}`", study, value["quantity"],
               value["over"], said, between(low, high), percent(miss_of(value, low, high))]


def resnet50_rows(sweep):
    for mode in MODES:
        line = sweep.at("weak", "resnet50", LARGEST, mode)
        yield [f"`{mode}`", f"{line['step_ms']:.1f}",
               *(f"{share(line, name):.1f}" for name in ("compute_ms", "background_ms", "copy_ms", "allreduce_ms")),
               f"{100 * line['coordination_share']:.1f}", f"{1 / line['vs_linear']:.2f}",
               percent(100 * (line["vs_baseline"] - 1)), f"{line['order_messages_per_step']:,.0f}",
               f"{line['coordinator_bytes_per_step']:,.0f}"]


def topo_rows(sweep):
    for model in sweep.models:
        gains = sweep.gains(model, "topo")
        yield [model, *(percent(sweep.gain(model, "topo", gpus=gpus)) for gpus in sweep.sizes("weak", model)),
               percent(sum(gains) / len(gains))]


def network_rows(sweep):
    for model in sweep.models:
        baseline = sweep.at("weak", model, LARGEST, "baseline")
        undisturbed = sweep.at("undisturbed", model, LARGEST, "locked")
        yield [model, f"{baseline['step_ms']:.1f}", f"{1 / baseline['vs_linear']:.2f}",
               f"{share(baseline, 'background_ms'):.1f}", *(percent(sweep.gain(model, mode)) for mode in CURES),
               percent(sweep.gain(model, "cached")), percent(sweep.gain(model, "locked")),
               percent(100 * (undisturbed["vs_baseline"] - 1))]


def rate_rows(sweep):
    for gpus in sweep.sizes("strong"):
        lines = [sweep.at("strong", "resnet50", gpus, mode) for mode in MODES]
        yield [f"{gpus:,}", f"{24576 / gpus:g}", *(f"{line['images_per_s'] / 1e3:,.0f}" for line in lines),
               *(percent(sweep.gain("resnet50", mode, "strong", gpus)) for mode in CURES)]


def scaling_rows(sweep, study):
    for gpus in sweep.sizes(study):
        yield [f"{gpus:,}", *(f"{1 / sweep.at(study, 'resnet50', gpus, mode)['vs_linear']:.2f}" for mode in MODES)]


def sensitivity_rows(sweep):
    for study in sweep.studies:
        if study in ("strong", "undisturbed"):
            continue
        name = "as it is" if study == "weak" else study
        baseline, locked = (sweep.at(study, "resnet50", LARGEST, mode) for mode in ("baseline", "locked"))
        ahead = {model: sweep.gain(model, "locked", study) - sweep.gain(model, "topo", study) for model in sweep.models}
        least = min(ahead, key=ahead.get)
        yield [name, f"{1 / baseline['vs_linear']:.2f}", f"{share(baseline, 'background_ms'):.1f}",
               *(percent(sweep.gain("resnet50", mode, study)) for mode in [*CURES, "locked"]),
               f"{100 * locked['coordination_share']:.1f}", f"{percent(ahead[least])} ({least})"]


def beyond_rows(sweep):
    for mode in MODES:
        line = sweep.at("100,000", "resnet50", 100000, mode)
        if line is None:
            continue
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
            ("The paper", ["figure", "section", "network", "mode", "scaling", "quantity", "", "paper", "simulated", "miss"],
             paper_rows(sweep)),
            ("ResNet-50 at 24,576 GPUs", ["mode", "step, ms", "compute, %", "background, %", "copies, %", "all-reduce, %",
                                          "coordination, %", "below linear", "gain, %", "order messages a step",
                                          "coordinator's bytes a step"], resnet50_rows(sweep)),
            ("TOPO by size", ["network", *(f"{gpus:,}" for gpus in sweep.sizes("weak")), "mean from 96"],
             topo_rows(sweep)),
            ("All networks at 24,576 GPUs", ["network", "baseline's step, ms", "below linear", "background, %", *cures,
                                             "`cached`", "`locked`", "`locked`, undisturbed"], network_rows(sweep)),
            ("Weak scaling", ["GPUs", *(f"`{mode}`" for mode in MODES)], scaling_rows(sweep, "weak")),
            ("Strong scaling, thousands of images a second, and gains",
             ["GPUs", "images a GPU", *(f"`{mode}`" for mode in MODES), *(f"{cure}, %" for cure in cures)],
             rate_rows(sweep)),
            ("Sensitivity", ["", "baseline below linear", "background, %", *cures, "`locked`",
                             "coordination of `locked`, %", "`locked` over `topo` at least, points"],
             sensitivity_rows(sweep)),
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


def draw_paper(sweep, axes, study, mode, model, at):
    """Draws a bar from the worst to the best size, and the paper's range beside it."""
    gains = sweep.gains(model, mode, study)
    axes.bar([at], [max(gains) - min(gains)], 0.5, bottom=[min(gains)], color="C0", alpha=0.4)
    axes.plot([at] * len(gains), gains, "C0.", markersize=4)
    for value in sweep.paper:
        asked = (value["quantity"], value["network"], value["of_mode"], value["strong"])
        if asked == ("gain, %", model, mode, study == "strong"):
            axes.plot([at + 0.35] * 2, [value["low"], value["high"]], "k_-", markersize=12)


def draw_gains(sweep, folder):
    pyplot = plot.require_matplotlib()
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.5), width_ratios=(5, 9), sharey=True)
    bars = [("weak", mode) for mode in CURES] + [("strong", "topo")]
    for at, (study, mode) in enumerate(bars):
        draw_paper(sweep, left, study, mode, "resnet50", at)
    left.set_xticks(range(len(bars)), [f"{mode}\n{study}" for study, mode in bars], fontsize="x-small")
    left.set_title("ResNet-50: figures 10 and 12 (their best)", fontsize="medium")
    left.set_ylabel("throughput over the baseline, %")
    for at, model in enumerate(sweep.models):
        draw_paper(sweep, right, "weak", "topo", model, at)
    right.set_xticks(range(len(sweep.models)), sweep.models, fontsize="x-small", rotation=20)
    right.set_title("TOPO alone: figure 13", fontsize="medium")
    for axes in (left, right):
        axes.use_sticky_edges = False
        axes.autoscale_view()
        axes.axhline(0, color="black", linewidth=0.5)
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
