#!/usr/bin/python3
"""Measures training steps of torchvision's networks: with rueda.torch's DistributedOptimizer, with DistributedDataParallel on
Rueda and on Gloo, and without communication ("local"), alternating on virtual nodes of this machine.

    bench/train.py sides --models resnet50 vgg16         # exposed communication of each side
    bench/train.py wrappers                              # P and F, one-step and two-step, ring and central
    bench/train.py fusion --svg fusion.svg               # 64 KiB to 128 MiB
    bench/train.py loops                                 # two-step and one-step, by threads of the daemon
    bench/train.py scaling --step-ms 370 --svg s.svg     # 1 to 4 ranks on 1 and 2 nodes
    bench/train.py sides --computes --data photographs   # real networks, real pictures, real input pipeline

Unless --computes is given, the network computes nothing: a step sleeps for --step-ms, and its gradients become ready when the
real network's would. So communication is what is measured, on however few cores. The output is Markdown: medians over the rounds
of the median step of the slowest rank, and in brackets what that is longer than the same step without communication, and that
step's share of it.

Exit codes: 0; 1 an error or a wrong result; 2 a wrong command line."""

import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from comparing.machine import NOISE_LIMIT_CORES, NoiseMeter, require_quiet
from comparing.network import open_network
from comparing.processes import CompareError
from comparing.training_jobs import JobError, parse_positive, parser_of
from training import KINDS_OF_PICTURES, cases, models, tables


def jobs_of(wanted):
    """Returns [(case, columns)]: the cases that are compared, and before them the same work without communication, once for all
    columns that differ in flags alone."""
    alone = {}
    for case in wanted:
        columns = alone.setdefault((case.model, case.ranks, case.nodes), (case.local(), {}))[1]
        columns.setdefault(case.column)
    return [(case, list(columns)) for case, columns in alone.values()] + [(case, [case.column]) for case in wanted]


def measure(options):
    """Returns ({(label, column): results, one a round}, the TCP congestion control). All cases run in turn, again and again."""
    found = defaultdict(list)
    jobs = jobs_of(cases.EXPERIMENTS[options.experiment](options))
    with tempfile.TemporaryDirectory() as folder, open_network(1, options.congestion) as network:
        options.node, = network.nodes
        congestion = network.congestion()
        schedules = {}
        if not options.computes:
            for model in dict.fromkeys(case.model for case, _ in jobs):
                schedules[model] = cases.schedule_of(model, options, folder)
        for number in range(options.rounds):
            for case, columns in jobs:
                result = run_quietly(case, options, schedules.get(case.model), f"round {number + 1}: {case.label}, {columns[0]}")
                for column in columns:
                    found[case.label, column].append(result)
    return dict(found), congestion


def run_quietly(case, options, schedule, what):
    """Returns the first result that nothing else disturbed, or the last one of 1 + --repeats if there is none. The result says
    which it is."""
    for repeat in range(options.repeats + 1):
        meter = NoiseMeter()
        result = cases.run(case, options, schedule)
        noise = meter.cores()
        result["disturbed"] = noise > NOISE_LIMIT_CORES
        print(f"{what}: {result['seconds'] * 1e3:.2f} ms a step (other work {noise:.2f} cores)", file=sys.stderr, flush=True)
        if not result["disturbed"] or repeat == options.repeats:
            return result


def report(found, options):
    if options.experiment == "scaling":
        print(tables.efficiencies(found))
    elif options.experiment == "fusion":
        print(tables.spreads(tables.size_columns(found)))
    else:
        print(tables.steps(tables.size_columns(found)))
    disturbed = {id(result) for results in found.values() for result in results if result["disturbed"]}
    if disturbed:
        print(f"\n{len(disturbed)} results were disturbed by other work")
    if options.phases:
        print("\nMilliseconds of each part of a step\n")
        print(tables.phases(tables.size_columns(found)))
    if options.json:
        rows = [{"label": label, "column": column, "rounds": results} for (label, column), results in found.items()]
        options.json.write_text(json.dumps({"experiment": options.experiment, "rows": rows}, indent=1) + "\n",
                                encoding="utf-8")
    if options.svg:
        draw = {"fusion": tables.draw_fusion, "scaling": tables.draw_efficiencies}
        draw.get(options.experiment, tables.draw_shares)(found, options.svg)


def parse(arguments):
    parser = parser_of(__doc__, steps=30, warmup=8, rounds=5)
    parser.add_argument("experiment", choices=cases.EXPERIMENTS)
    parser.add_argument("--models", nargs="+", choices=models.MODELS, default=["resnet50"])
    parser.add_argument("--sides", nargs="+", choices=cases.SIDES, default=cases.SIDES)
    parser.add_argument("--step-ms", type=float, default=50, help="of a network that sleeps")
    parser.add_argument("--computes", action="store_true", help="train for real")
    parser.add_argument("--data", choices=KINDS_OF_PICTURES, default="synthetic", help="with --computes")
    parser.add_argument("--batch", type=int, default=8, help="of each rank, with --computes")
    parser.add_argument("--pixels", type=int, default=64, help="a side of a picture, with --computes")
    parser.add_argument("--phases", action="store_true", help="print the parts of a step, too")
    parser.add_argument("--json", type=Path, help="write every round's results to this file")
    parser.add_argument("--svg", type=Path, help="draw it")
    parser.add_argument("--congestion", default="system", metavar="NAME",
                        help="TCP congestion control of all sides: reno, bbr, or the system's (system); runs in a network "
                             "namespace, and needs root")
    parser.add_argument("--repeats", type=int, default=2, help="of a job that other work disturbed, at most")
    parser.add_argument("--busy-ok", action="store_true", help="measure beside other work")
    options = parse_positive(parser, arguments, "step_ms", "batch", "pixels")
    if options.experiment != "sides" and len(options.models) > 1:
        parser.error(f"{options.experiment} takes one of --models")
    if options.repeats < 0:
        parser.error("--repeats is 0 at least")
    options.step_s = 0.0 if options.computes else options.step_ms / 1e3
    return options


def main():
    options = parse(sys.argv[1:])
    try:
        require_quiet(options.busy_ok, lambda text: print(text, file=sys.stderr))
        found, congestion = measure(options)
    except (CompareError, JobError) as error:
        print(f"train.py: {error}", file=sys.stderr)
        return 1
    kind = f"{options.data} pictures" if options.computes else f"asleep, {options.step_ms:g} ms a step"
    place = "" if options.experiment == "scaling" else f"{options.ranks} ranks on {options.nodes} nodes, "
    print(f"{', '.join(options.models)}: {place}{kind}; TCP over loopback under {congestion}; "
          f"medians of {options.rounds} rounds\n")
    report(found, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
