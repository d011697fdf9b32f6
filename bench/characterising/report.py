"""Prints what was measured: a table a study, the papers' numbers beside ours, a CSV file of all cells, and pictures."""

import csv

from comparing import plot
from comparing.report import number, table
from comparing.work import format_size

from .cells import STUDIES
from .papers import PUBLISHED, published
from .running import Store

COLUMNS = ("study", "preset", "flags", "model", "batch", "size_bytes", "nodes", "ranks_per_node", "rate", "rounds", "compute_ms", "step_ms",
           "images_per_s", "efficiency", "cpu_s", "sent_bytes", "noise_cores")


class Found:
    """The medians of all cells that a store has."""

    def __init__(self, store):
        self.cells = {name: [(cell, result) for cell in study() if (result := store.median(cell))] for name, study in STUDIES.items()}

    def value(self, study, name, **wanted):
        """Returns a number of the one cell of a study that is as wanted, or None if it was not measured."""
        found = [result[name] for cell, result in self.cells[study]
                 if name in result and all(getattr(cell, key) == value for key, value in wanted.items())]
        return found[0] if found else None


def label_of(cell):
    return " ".join((cell.preset, *cell.flags))


def cells_table(cells):
    """Returns the lines of a study's table."""
    rows = [[label_of(cell), cell.model or format_size(cell.size_bytes), str(cell.batch or "–"), f"{cell.nodes} × {cell.ranks_per_node}",
             cell.rate or "unshaped", number(result["compute_ms"]) if cell.batch else "–", number(result["step_ms"]),
             number(result["images_per_s"]) if cell.batch else "–", f"{result['efficiency']:.0%}" if cell.batch else "–",
             number(result["cpu_s"]), number(result["sent_bytes"] / 1e6) if "sent_bytes" in result else "–"]
            for cell, result in cells]
    return table(["preset and flags", "work", "batch", "nodes × ranks", "link", "compute, ms", "step, ms", "images/s", "efficiency",
                  "CPU s a step", "MB sent a step"], rows)


def ratio(over, under):
    return None if not over or not under else over / under


def beside(found):
    """Returns [(the published number, ours, in the same unit, or None; what ours is of)], for all that a measured cell answers."""
    def efficiency(study, **wanted):
        value = found.value(study, "efficiency", **wanted)
        return value and 100 * value

    def steps(study, over, under, **wanted):
        return ratio(found.value(study, "step_ms", **over, **wanted), found.value(study, "step_ms", **under, **wanted))

    grpc, horovod = {"preset": "grpc-ps"}, {"preset": "horovod"}
    eight, four = {"nodes": 8}, {"nodes": 4}
    ring = ("--algorithm", "ring")
    return [
        (published("Uber", "1", "gRPC servers"), efficiency("uber", model="resnet101", **grpc, **eight), "ResNet-101, 8 nodes, 10 Gbit/s"),
        (published("Uber", "6", "Horovod over 25"), efficiency("uber", model="resnet101", **horovod, **eight),
         "`horovod`, ResNet-101, 8 nodes, 10 Gbit/s"),
        (published("Uber", "6", "Horovod over 25"), efficiency("uber", model="inception3", **horovod, **eight),
         "`horovod`, Inception-v3, 8 nodes, 10 Gbit/s"),
        (published("Uber", "6", "Horovod over gRPC"), steps("uber", grpc, horovod, model="resnet101", **eight), "ResNet-101, 8 nodes"),
        (published("Awan", "7", "Horovod-MPI-Opt"), efficiency("approaches", preset="mpi-opt", **eight), "`mpi-opt`, 8 nodes"),
        (published("Awan", "9", "Horovod-MPI, MobileNet"), efficiency("networks", model="mobilenet1", **horovod, **four), "4 nodes"),
        (published("Awan", "9", "Horovod-MPI, ResNet-50"), efficiency("networks", model="resnet50", **horovod, **four), "4 nodes"),
        (published("Awan", "9", "Horovod-MPI, NASNet"), efficiency("networks", model="nasnet-large", **horovod, **four),
         "4 nodes, batch 16"),
        (published("Awan", "9", "Horovod-MPI over gRPC, ResNet"), steps("networks", grpc, horovod, model="resnet50", **four), "4 nodes"),
        (published("Awan", "9", "Horovod-MPI over gRPC, MobileNet"), steps("networks", grpc, horovod, model="mobilenet1", **four), "4 nodes"),
        (published("Cambridge", "4", "1-step P+F"), efficiency("reducers", preset="cambridge-1step", flags=ring, nodes=4),
         "8 ranks on 4 nodes, 1 Gbit/s"),
    ]


def beside_table(found):
    rows = []
    for paper, ours, of in beside(found):
        if ours is None:
            continue
        theirs = number(paper.low) if paper.low == paper.high else f"{number(paper.low)} to {number(paper.high)}"
        off = ours / paper.low - 1 if ours < paper.low else ours / paper.high - 1 if ours > paper.high else 0.0
        rows.append([f"{paper.text}, figure {paper.figure} ({paper.section})", paper.what, paper.unit, theirs, number(ours), of, f"{off:+.0%}"])
    return table(["paper", "what", "unit", "theirs", "ours", "ours is of", "off by"], rows)


def draw_scaling(found, folder):
    """Draws images a second over nodes as Uber's figure 6 and Awan's figures 3 and 7 have them, beside the ideal."""
    pyplot = plot.require_matplotlib()
    panels = (("uber", "inception3"), ("uber", "resnet101"), ("approaches", "resnet50"))
    figure, all_axes = pyplot.subplots(1, len(panels), figsize=(13, 4.5))
    for axes, (study, model) in zip(all_axes, panels):
        curves = {}
        for cell, result in found.cells[study]:
            if cell.model == model:
                curves.setdefault(label_of(cell), []).append((cell.nodes, result["images_per_s"]))
                alone = cell.batch / result["compute_ms"] * 1e3
                curves.setdefault("ideal", {})[cell.nodes] = cell.nodes * alone
        for label, points in curves.items():
            points = sorted(points.items() if isinstance(points, dict) else points)
            axes.plot(*zip(*points), marker="o", markersize=3, label=label, linestyle=":" if label == "ideal" else "-")
        axes.set_title(f"{model}, 10 Gbit/s", fontsize="medium")
        axes.set_xlabel("nodes of one rank each")
        axes.set_ylabel("images a second")
        axes.set_ylim(bottom=0)
        axes.grid(True, alpha=0.3)
        if curves:
            axes.legend(fontsize="x-small")
    plot.save(figure, folder / "characterisation-scaling.svg")
    pyplot.close(figure)


def draw_ring_and_central(found, folder):
    pyplot = plot.require_matplotlib()
    figure, axes = pyplot.subplots(figsize=(6, 4.5))
    curves = {}
    for cell, result in found.cells["ring-and-central"]:
        curves.setdefault(cell.flags[1], []).append((cell.nodes, result["step_ms"]))
    for label, points in curves.items():
        axes.plot(*zip(*sorted(points)), marker="o", label=label)
    axes.set_xlabel("nodes, each at a link of 1 Gbit/s")
    axes.set_ylabel("ms, all-reduce of 8 MiB")
    axes.set_ylim(bottom=0)
    axes.grid(True, alpha=0.3)
    if curves:
        axes.legend()
    plot.save(figure, folder / "characterisation-ring.svg")
    pyplot.close(figure)


def write_csv(found, path):
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for cells in found.cells.values():
            for cell, result in cells:
                row = {**cell.__dict__, "flags": " ".join(cell.flags), **result}
                writer.writerow([f"{row[name]:.6g}" if isinstance(row.get(name), float) else row.get(name, "") for name in COLUMNS])


def report(options):
    found = Found(Store(options.store))
    print("The papers' numbers beside ours\n")
    print("\n".join(beside_table(found)))
    for name, cells in found.cells.items():
        if cells:
            print(f"\n{name}, medians of {min(result['rounds'] for _, result in cells)} rounds or more\n")
            print("\n".join(cells_table(cells)))
        missing = len(STUDIES[name]()) - len(cells)
        if missing:
            print(f"\n{name}: {missing} cells are not measured")
    print(f"\n{len(PUBLISHED)} published numbers are known")
    if options.csv:
        write_csv(found, options.csv)
    if options.svg:
        draw_scaling(found, options.svg)
        draw_ring_and_central(found, options.svg)
