"""Fits the costs of the data plane, and compares and prints what rueda-sim --data-plane makes of them."""

import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

from comparing import plot
from comparing.processes import CompareError
from comparing.programs import find_program
from comparing.report import number, table

from .cells import STUDIES
from .papers import published
from .running import Store

PREDICTED_PRESETS = ("rueda", "horovod")  # the ring of the nodes; the other presets have other schedules
LARGE = 1 << 20


def least_squares(rows):
    """Returns (a, b) with a·x + b·y nearest to z, for the rows' (x, y, z), in relative terms, and neither below 0."""
    rows = [(x / z, y / z, 1.0) for x, y, z in rows]
    xx, xy, yy = (sum(row[i] * row[j] for row in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    x, y = (sum(row[i] for row in rows) for i in (0, 1))
    determinant = xx * yy - xy * xy
    if determinant <= 1e-12 * xx * yy:
        raise CompareError("the cells of the study calibration do not tell the two costs apart: measure all of them")
    a, b = (x * yy - y * xy) / determinant, (y * xx - x * xy) / determinant
    if a < 0:
        return 0.0, y / yy
    return (a, b) if b >= 0 else (x / xx, 0.0)


def fit(measured):
    """Returns the costs (bench/predict/data_plane.h) from [(cell, result)] of the study calibration."""
    small = [(cell, result) for cell, result in measured if cell.size_bytes < LARGE and cell.ranks_per_node == 1]
    large = [(cell, result) for cell, result in measured if cell.size_bytes >= LARGE]
    if len(small) < 2 or len(large) < 3:
        raise CompareError("the study calibration is not in the store: bench/characterise.py run --study calibration")
    # CPU ns of all nodes: for the ranks' bytes, and for those on the wire.
    rank_ns, wire_ns = least_squares([(cell.ranks * result["bytes"], 2 * (cell.nodes - 1) * result["bytes"], result["cpu_s"] * 1e9)
                                      for cell, result in large])
    # Of small operations the time is one of hops, and a part that does not depend on the nodes.
    hops = [(2 * (cell.nodes - 1), result["step_ms"] * 1e3) for cell, result in small]
    (few, fast), (many, slow) = sorted(hops)[0], sorted(hops)[-1]
    hop_us = max((slow - fast) / (many - few), 0.0)
    busy = statistics.median(result["cpu_s"] / (result["step_ms"] / 1e3) for _, result in large)
    return {"hop_us": hop_us, "operation_us": max(fast - few * hop_us, 0.0), "rank_ns_per_byte": rank_ns, "wire_ns_per_byte": wire_ns,
            "busy_cores": busy, "source": f"bench/characterise.py costs, a machine with {os.cpu_count()} CPUs"}


def measured_cells(store, studies):
    return [(cell, result) for name in studies for cell in STUDIES[name]() if (result := store.median(cell))]


def write_costs(options):
    costs = fit(measured_cells(Store(options.store), ["calibration"]))
    options.out.write_text(json.dumps(costs, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(costs))


def ask_simulator(options, clusters):
    """Returns rueda-sim's prediction of each cluster."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clusters.json"
        path.write_text(json.dumps(clusters), encoding="utf-8")
        done = subprocess.run([find_program(options.bin_dir, "rueda-sim"), "--data-plane", path, "--costs", options.costs],
                              capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompareError(done.stderr.strip())
    return [json.loads(line) for line in done.stdout.splitlines()]


def cluster_of(cell, result, busy_cores):
    """Returns the cluster that a cell was measured on: its nodes share this machine's cores."""
    return {"name": cell.what(), "nodes": cell.nodes, "gpus_per_node": cell.ranks_per_node, "nic_gbit": int(cell.rate[:-4]) if cell.rate else 0,
            "shared_cores": busy_cores, "model": cell.model, "images": cell.batch, "compute_ms": result["compute_ms"]}


def is_predicted(cell):
    return cell.batch > 0 and cell.preset in PREDICTED_PRESETS and cell.ranks_per_node == 1 and cell.nodes > 1 and not cell.flags


def errors(pairs):
    return [abs(prediction["step_ms"] / result["step_ms"] - 1) for _, result, prediction in pairs]


def exposed_errors(pairs):
    """Returns the errors of what a step takes beyond computing, where that is a tenth of the step or more."""
    return [abs(prediction["exposed_ms"] / (result["step_ms"] - result["compute_ms"]) - 1) for _, result, prediction in pairs
            if result["step_ms"] - result["compute_ms"] >= 0.1 * result["step_ms"]]


def validate(options):
    costs = json.loads(options.costs.read_text(encoding="utf-8"))
    seen, cells = set(), []
    for cell, result in measured_cells(Store(options.store), [name for name in STUDIES if name != "calibration"]):
        same = (cell.preset, cell.model, cell.batch, cell.nodes, cell.rate)
        if is_predicted(cell) and same not in seen:
            seen.add(same)
            cells.append((cell, result))
    if not cells:
        raise CompareError("the store has no step to compare with: bench/characterise.py run --study uber")
    predictions = ask_simulator(options, [cluster_of(cell, result, costs["busy_cores"]) for cell, result in cells])
    pairs = [(cell, result, prediction) for (cell, result), prediction in zip(cells, predictions)]
    print("\n".join(table(
        ["preset", "network", "batch", "nodes", "link", "compute, ms", "measured, ms", "predicted, ms", "off by"],
        [[cell.preset, cell.model, str(cell.batch), str(cell.nodes), cell.rate or "unshaped", number(result["compute_ms"]),
          number(result["step_ms"]), number(prediction["step_ms"]), f"{prediction['step_ms'] / result['step_ms'] - 1:+.0%}"]
         for cell, result, prediction in pairs])))
    print(f"\nMedian error of a step {statistics.median(errors(pairs)):.1%}, largest {max(errors(pairs)):.0%}, of {len(pairs)} "
          "configurations, none of which was fitted on")
    beyond = exposed_errors(pairs)
    if beyond:
        print(f"Median error of what a step takes beyond computing {statistics.median(beyond):.0%}, where it is a tenth of the step or "
              f"more ({len(beyond)} configurations)")
    if options.svg:
        draw(pairs, options.svg)


def draw(pairs, folder):
    pyplot = plot.require_matplotlib()
    figure, axes = pyplot.subplots(figsize=(6, 5.5))
    models = sorted({cell.model for cell, _, _ in pairs})
    for model in models:
        axes.plot([result["step_ms"] for cell, result, _ in pairs if cell.model == model],
                  [prediction["step_ms"] for cell, _, prediction in pairs if cell.model == model], "o", markersize=4, label=model)
    times = [result["step_ms"] for _, result, _ in pairs]
    ends = [min(times) * 0.8, max(times) * 1.25]
    axes.plot(ends, ends, color="grey", linewidth=1, label="equal")
    axes.fill_between(ends, [0.85 * each for each in ends], [1.15 * each for each in ends], color="grey", alpha=0.15, label="within 15 %")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("measured, ms a step")
    axes.set_ylabel("predicted, ms a step")
    axes.legend(fontsize="small")
    axes.grid(True, alpha=0.3)
    plot.save(figure, folder / "characterisation-prediction.svg")
    pyplot.close(figure)


def published_clusters():
    """Returns [(the published number, the cluster)], for the papers' own clusters. Rates of networks that a text does not give are
    public: EDR InfiniBand has 100 Gbit/s, and a node of Piz Daint some 80 Gbit/s into Aries."""
    def one(paper, unit, **cluster):
        return paper, unit, {"name": f"{paper.text}, figure {paper.figure}: {paper.what}", **cluster}

    uber = {"nodes": 32, "gpus_per_node": 4, "nic_gbit": 25, "images": 64}
    fig6 = published("Uber", "6", "Horovod over 25")
    return [
        one(published("Baidu", "none", "300 M parameters, 40"), "step_ms", nodes=5, gpus_per_node=8, nic_gbit=48, transport="rdma",
            parameters=300e6, compute_ms=370),
        one(fig6, "efficiency", model="inception3", **uber),
        one(fig6, "efficiency", model="resnet101", **uber),
        one(published("Awan", "7", "Horovod-MPI-Opt"), "efficiency", nodes=16, nic_gbit=100, transport="rdma", model="resnet50", images=64,
            compute_ms=64 / 51.9 * 1e3),  # a K80, by the source of the P100's times
        one(published("Awan", "8", "Horovod-MPI-Opt"), "efficiency", nodes=64, nic_gbit=100, transport="rdma", model="resnet50", images=64),
        *(one(published("Awan", "9", f"Horovod-MPI, {name}"), "efficiency", nodes=128, nic_gbit=80, transport="rdma", model=model,
              images=images)
          for name, model, images in (("MobileNet", "mobilenet1", 64), ("ResNet-50", "resnet50", 64), ("NASNet", "nasnet-large", 16))),
    ]


def predict(options):
    papers = published_clusters()
    rows = []
    for (paper, unit, _), found in zip(papers, ask_simulator(options, [cluster for _, _, cluster in papers])):
        ours = found[unit] * (100 if unit == "efficiency" else 1)
        theirs = number(paper.low) if paper.low == paper.high else f"{number(paper.low)} to {number(paper.high)}"
        off = ours / paper.low - 1 if ours < paper.low else ours / paper.high - 1 if ours > paper.high else 0.0
        rows.append([f"{paper.text}, figure {paper.figure}", paper.what, paper.unit, theirs, number(ours), f"{off:+.0%}"])
    print("\n".join(table(["paper", "what", "unit", "published", "predicted", "off by"], rows)))
    sizes = (16, 64, 256, 1024, 4096)
    places = [(transport, rate) for transport in ("tcp", "rdma") for rate in (25, 100, 400)]
    for model in ("resnet50", "vgg16", "mobilenet1", "nasnet-large"):
        clusters = [{"name": "", "nodes": nodes, "gpus_per_node": 4, "nic_gbit": rate, "cores_per_node": 4, "transport": transport,
                     "model": model, "images": 64} for transport, rate in places for nodes in sizes]
        found = iter(ask_simulator(options, clusters))
        print(f"\n{model}, a batch of 64 on each of 4 P100s a node, four cores a node for the data plane: predicted efficiency\n")
        print("\n".join(table(["transport and link", *(f"{nodes:,} nodes" for nodes in sizes)],
                              [[f"{transport}, {rate} Gbit/s", *(f"{next(found)['efficiency']:.0%}" for _ in sizes)]
                               for transport, rate in places])))
