#!/usr/bin/python3
"""Measures steps with the plan that rueda.torch declares from the graph (25 MiB share an operation) beside steps with the plan that is
learned in the first three steps (RUEDA_TORCH_DECLARE=0), in turn, on virtual nodes of this machine.

    bench/declared.py                       # ResNet-50, steps of 50 and of 300 ms, 4 ranks on 2 nodes
    bench/declared.py --step-ms 100 --rounds 9 --model vgg16

A step sleeps for --step-ms, and its gradients become ready when the real network's would, as in bench/train.py. There is no barrier
between steps, as none is in the plan that is declared: with one, that plan would be left in the first step, and learned anew. The
output is Markdown: medians over the rounds of the median step of the slowest rank, the median of each round's ratio with the least
and the most, and how many operations a step is in the plan that was in force at the end.

Exit codes: 0; 1 an error or a wrong result; 2 a wrong command line."""

import json
import re
import statistics
import sys
import tempfile
from collections import defaultdict

from comparing.machine import require_quiet
from comparing.processes import CompareError
from comparing.training_jobs import PYTHON, ROOT, JobError, parse_positive, parser_of, ruedarun, run_job
from training import cases, models

SIDES = {"declared": "1", "learned": "0"}


def command_of(options, step_ms, schedule):
    return [*ruedarun(options), PYTHON, str(ROOT / "bench" / "declared_rank.py"), "--schedule", str(schedule), "--step-s",
            str(step_ms / 1e3), "--steps", str(options.steps), "--warmup", str(options.warmup), "--ruedactl",
            str(options.build / "bin" / "ruedactl")]


def checked(result, options, what):
    """Returns the result if every rank's gradient was in the average, and a plan was in force at the end."""
    if abs(result["average"] - (options.ranks + 1) / 2) > 1e-6:
        raise JobError(f"{what}: the average of the gradients is {result['average']}, not {(options.ranks + 1) / 2}")
    if result["operations"] < 1:
        raise JobError(f"{what}: no plan was in force after the last step")
    return result


def run(options, side, step_ms, schedule):
    """Returns {"seconds": ..., "operations": ..., "average": ...} of one job."""
    what = f"{side}, {step_ms:g} ms"
    said = run_job(command_of(options, step_ms, schedule), options, what, {"RUEDA_TORCH_DECLARE": SIDES[side]})
    found = re.search(r"^\{.*\}$", said, re.MULTILINE)
    if not found:
        raise JobError(f"{what} printed no result:\n{said}")
    return checked(json.loads(found.group()), options, what)


def measure(options):
    """Returns results by (milliseconds a step, side), one a round. The sides run in turn, and each begins every other round."""
    found = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="rueda-bench-") as folder:
        schedule = cases.schedule_of(options.model, options, folder)
        for number in range(options.rounds):
            for step_ms in options.step_ms:
                for side in list(SIDES)[::-1 if number % 2 else 1]:
                    result = run(options, side, step_ms, schedule)
                    found[step_ms, side].append(result)
                    print(f"round {number + 1}: {side}, {step_ms:g} ms: {result['seconds'] * 1e3:.2f} ms a step, "
                          f"{result['operations']} operations", file=sys.stderr, flush=True)
    return dict(found)


def table(found):
    """Returns the medians as Markdown, a row a length of steps."""
    lines = ["| step, ms | declared, ms | learned, ms | declared / learned | operations declared | learned |", "|---" * 6 + "|"]
    for step_ms in dict.fromkeys(step_ms for step_ms, _ in found):
        declared, learned = (found[step_ms, side] for side in SIDES)
        ratios = [one["seconds"] / other["seconds"] for one, other in zip(declared, learned)]
        cells = [f"{statistics.median(one['seconds'] for one in results) * 1e3:.1f}" for results in (declared, learned)]
        cells.append(f"{statistics.median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f})")
        for results in (declared, learned):
            counts = sorted({one["operations"] for one in results})
            cells.append("..".join(str(count) for count in dict.fromkeys((counts[0], counts[-1]))))
        lines.append(f"| {step_ms:g} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def parse(arguments):
    parser = parser_of(__doc__, steps=30, warmup=8, rounds=5)
    parser.add_argument("--model", choices=models.MODELS, default="resnet50")
    parser.add_argument("--step-ms", type=float, nargs="+", default=[50.0, 300.0], help="of the network that sleeps")
    parser.add_argument("--busy-ok", action="store_true", help="measure beside other work")
    options = parse_positive(parser, arguments, "warmup")
    if min(options.step_ms) <= 0:
        parser.error("--step-ms must be more than 0")
    return options


def main():
    options = parse(sys.argv[1:])
    try:
        require_quiet(options.busy_ok, lambda text: print(text, file=sys.stderr))
        found = measure(options)
    except (CompareError, JobError) as error:
        print(f"declared.py: {error}", file=sys.stderr)
        return 1
    print(f"{options.model}, asleep: {options.ranks} ranks on {options.nodes} nodes; medians of {options.rounds} rounds\n")
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
