#!/usr/bin/python3
"""Measures what it costs that a job could go on without a part of it: all-reduces and a model's whole gradient set in a job that ends with
its first death, and in the same job with --min-np, in turn, on virtual nodes of this machine.

    bench/elastic_tax.py                                # 4 KiB, 64 MiB and ResNet-50's gradients, 4 ranks on 2 nodes
    bench/elastic_tax.py --rounds 21 --sizes 4K

The output is Markdown: medians over the rounds of rueda-bench's median time, and the median of each round's ratio with the least and the
most. Which of the two begins alternates.

Exit codes: 0; 1 an error or a wrong result; 2 a wrong command line."""

import json
import os
import statistics
import sys
import tempfile
from collections import defaultdict

from comparing.machine import require_quiet
from comparing.processes import CompareError
from comparing.training_jobs import JobError, bare_parser_of, parse_positive, ruedarun, run_job

SIDES = {"fail": [], "elastic": ["--min-np", "1"]}


def works_of(options):
    """Returns {name: rueda-bench's arguments}."""
    count = ["--iters", str(options.steps)]
    return {**{size: ["allreduce", "--sizes", size, "--inplace", *(count if size.endswith("K") else [])] for size in options.sizes},
            options.model: ["step", "--model", options.model, *count]}


def run(options, side, name, arguments, folder):
    """Returns the median seconds that rueda-bench has measured."""
    path = os.path.join(folder, "rows")
    run_job([*ruedarun(options), *SIDES[side], str(options.build / "bin" / "rueda-bench"), *arguments, "--json", path], options,
            f"{side}, {name}")
    with open(path, encoding="utf-8") as file:
        row = json.loads(file.readline())
    os.remove(path)
    if row["wrong"] != 0:
        raise JobError(f"{side}, {name}: {row['wrong']} wrong values")
    return row["time_us"] / 1e6


def measure(options):
    """Returns {(name, side): seconds, one a round}."""
    found = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="rueda-bench-") as folder:
        for number in range(options.rounds):
            for name, arguments in works_of(options).items():
                for side in list(SIDES)[::-1 if number % 2 else 1]:
                    found[name, side].append(run(options, side, name, arguments, folder))
                    print(f"round {number + 1}: {side}, {name}: {found[name, side][-1] * 1e3:.3f} ms", file=sys.stderr, flush=True)
    return dict(found)


def table(found):
    """Returns the medians as Markdown."""
    lines = ["| | fail, ms | elastic, ms | elastic / fail |", "|---" * 4 + "|"]
    for name in dict.fromkeys(name for name, _ in found):
        fail, elastic = (found[name, side] for side in SIDES)
        ratios = [other / one for one, other in zip(fail, elastic)]
        lines.append(f"| {name} | {statistics.median(fail) * 1e3:.3f} | {statistics.median(elastic) * 1e3:.3f} | "
                     f"{statistics.median(ratios):.3f} ({min(ratios):.3f}..{max(ratios):.3f}) |")
    return "\n".join(lines)


def parse(arguments):
    parser = bare_parser_of(__doc__, steps=200, rounds=11)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--nodes", type=int, default=2, help="virtual nodes")
    parser.add_argument("--sizes", type=lambda text: text.split(","), default=["4K", "64M"], help="of all-reduces, by commas")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--busy-ok", action="store_true", help="measure beside other work")
    return parse_positive(parser, arguments)


def main():
    options = parse(sys.argv[1:])
    try:
        require_quiet(options.busy_ok, lambda text: print(text, file=sys.stderr))
        found = measure(options)
    except (CompareError, JobError) as error:
        print(f"elastic_tax.py: {error}", file=sys.stderr)
        return 1
    print(f"{options.ranks} ranks on {options.nodes} nodes; medians of {options.rounds} rounds\n\n{table(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
