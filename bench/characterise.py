#!/usr/bin/python3
"""Makes the papers' figures again with daemons on this machine, each node in a network namespace with a link of its own.

    bench/characterise.py run --store results.jsonl                    # everything that the file does not have yet
    bench/characterise.py run --store results.jsonl --study modes      # one study
    bench/characterise.py run --store results.jsonl --seconds 300      # stops between two cells after so long
    bench/characterise.py report --store results.jsonl --csv cells.csv --svg docs/images
    bench/characterise.py costs --store results.jsonl --out costs.json      # what rueda-sim --data-plane computes from
    bench/characterise.py validate --store results.jsonl --costs costs.json --svg docs/images
    bench/characterise.py predict --costs costs.json                   # the papers' clusters, and larger ones

A cell is one job: a preset, a network, a batch, nodes and a link. Its ranks compute nothing: they sleep as long as one P100
computes such a step, and hand over each gradient when the backward pass would have it ready. So what a cell measures is what
communication adds to a step where computing takes no CPU, as on GPUs. All nodes share this machine's CPUs, which a cluster's do
not: the report says where that decides. `run` needs root.

Exit codes: 0; 1 an error; 2 a wrong command line."""

import argparse
import signal
import sys
import time
from pathlib import Path

from characterising import cells, prediction, report, running
from comparing import plot
from comparing.machine import require_quiet
from comparing.processes import CompareError
from comparing.programs import default_bin_dir


def log(text):
    print(text, file=sys.stderr, flush=True)


def run(options):
    """Measures, in turn, each cell that the store lacks, and logs how many are left and for how long they may take."""
    store = running.Store(options.store)
    wanted = [(cell, number) for number in range(options.rounds) for cell in cells.cells_of(options.study)
              if not store.has(cell, number)]
    if not wanted:
        log("nothing is left to measure")
        return
    require_quiet(options.busy_ok, log)
    networks = running.read_networks(options.bin_dir, sorted({cell.model for cell, _ in wanted if cell.model}))
    begin = time.monotonic()
    failed = 0
    for done, (cell, number) in enumerate(wanted):
        spent_s = time.monotonic() - begin
        if options.seconds and spent_s > options.seconds:
            log(f"{len(wanted) - done} cells are left for another run")
            break
        left = f"about {spent_s / done * (len(wanted) - done):.0f} s left" if done else "the first one"
        try:
            result = running.measure(cell, networks, options)
        except CompareError as error:  # the other cells are worth having, and this one is tried again by the next run
            failed += 1
            log(f"{done + 1} of {len(wanted)}: {cell.what()}: {error}")
            continue
        store.add(cell, number, result)
        log(f"{done + 1} of {len(wanted)} ({left}): {cell.what()}: {result['step_ms']:.2f} ms")
    if failed:
        raise CompareError(f"{failed} cells failed; the next run tries them again")


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return value


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name, does, text):
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(does=does)
        added.add_argument("--bin-dir", type=Path, default=default_bin_dir(), help="with ruedarun, rueda-bench and rueda-sim")
        return added

    runs = command("run", run, "measure what the store lacks")
    runs.add_argument("--study", nargs="+", choices=cells.STUDIES, default=list(cells.STUDIES), help="these alone")
    runs.add_argument("--rounds", type=positive, default=1, help="of all cells (1)")
    runs.add_argument("--steps", type=positive, default=5, help="measured in each job, and four times as many where nothing sleeps and no link is shaped (5)")
    runs.add_argument("--warmup", type=positive, default=4, help="steps before them (4)")
    runs.add_argument("--seconds", type=positive, help="begin no cell after so long")
    runs.add_argument("--timeout-s", type=positive, default=300, help="of one job (300)")
    runs.add_argument("--busy-ok", action="store_true", help="measure beside other work")
    reports = command("report", report.report, "print the tables, the papers' numbers beside ours")
    reports.add_argument("--csv", type=Path, help="write every cell to this file")
    costs = command("costs", prediction.write_costs, "fit the costs of the data plane on the cells of the study calibration")
    costs.add_argument("--out", type=Path, required=True, help="the file to write")
    validates = command("validate", prediction.validate, "compare predicted steps with measured ones that were not fitted on")
    predicts = command("predict", prediction.predict, "predict the papers' clusters, and 16 to 4,096 nodes")
    for each in (runs, reports, costs, validates):
        each.add_argument("--store", type=Path, required=True, help="the file of results, a line a cell")
    for each in (validates, predicts):
        each.add_argument("--costs", type=Path, required=True, help="the file that `costs` wrote")
    for each in (reports, validates):
        each.add_argument("--svg", type=Path, metavar="DIR", help="draw there")
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse(arguments)
    # A SIGTERM must pass through the blocks that remove the namespaces.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        if getattr(options, "svg", None):
            plot.require_matplotlib()
        options.does(options)
    except (CompareError, OSError, ValueError) as error:
        print(f"characterise.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
