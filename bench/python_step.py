#!/usr/bin/python3
"""Measures what Python adds to a training step: the gradient sets of ResNet-50 and of a thousand tensors of 1 KB, reduced by
`rueda-bench step` and, alternating with it, through rueda.torch: by a call for each tensor, and by one for all of them as a
group. The output is Markdown: medians over the rounds of the median step of the slowest rank, in milliseconds, and how much more
that is than without Python.

    bench/python_step.py                    # 4 ranks on 2 nodes
    bench/python_step.py --rounds 9 --only small1000

The aims are less than 10 % for ResNet-50, less than 2 ms for the thousand tensors, and no byte copied.

Exit codes: 0; 1 an error, a wrong result, or bytes that were copied; 2 a wrong command line."""

import json
import os
import re
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from comparing.training_jobs import PYTHON, ROOT, JobError, parse_positive, parser_of, report, ruedarun, run_job

MODELS = ("resnet50", "small1000")
WAYS = ("rueda-bench", "each", "grouped")


def command_of(options, model, way, json_path):
    """Returns the command line. rueda-bench writes its result to `json_path`, a rank in Python to standard output."""
    command = ruedarun(options)
    if way == "rueda-bench":
        return [*command, str(options.build / "bin" / "rueda-bench"), "step", "--model", model,
                "--iters", str(options.steps), "--warmup", str(options.warmup), "--json", json_path]
    command += [PYTHON, str(ROOT / "bench" / "python_step_rank.py"), "--model", model]
    command += ["--grouped"] * (way == "grouped")
    return [*command, "--steps", str(options.steps), "--warmup", str(options.warmup)]


def checked(result, model, way):
    """Returns the result if it is right, and raises otherwise."""
    for key, trouble in (("wrong", "wrong elements"), ("copied", "bytes copied")):
        if result.get(key, 0) != 0:
            raise JobError(f"{model}, {way}: {result[key]} {trouble}")
    return result


def run(options, model, way):
    """Returns {"seconds": ..., "tensors": ..., "bytes": ...} of one job."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "step.json")
        said = run_job(command_of(options, model, way, path), options, f"{model}, {way}")
        text = Path(path).read_text(encoding="utf-8") if os.path.exists(path) else said
    lines = [json.loads(line) for line in re.findall(r"^\{.*\}$", text, re.MULTILINE)]
    found = [line for line in lines if "tensors" in line]
    if not found:
        raise JobError(f"{model}, {way} printed no result:\n{said}")
    [result] = found
    if "time_us" in result:
        result["seconds"] = result["time_us"] / 1e6
    return checked(result, model, way)


def measure(options):
    """Returns step times, in seconds, by (model, way): one a round, in turn."""
    times = defaultdict(list)
    for number in range(options.rounds):
        for model in options.only:
            results = {way: run(options, model, way) for way in WAYS}
            sets = {way: (result["tensors"], result["bytes"]) for way, result in results.items()}
            if len(set(sets.values())) != 1:
                raise JobError(f"{model} is not the same set of tensors and bytes for both: {sets}")
            for way in WAYS:
                times[model, way].append(results[way]["seconds"])
            print(f"round {number + 1}: {model}: " +
                  ", ".join(f"{way} {results[way]['seconds'] * 1e3:.3f} ms" for way in WAYS),
                  file=sys.stderr, flush=True)
    return times


def table(times, models):
    """Returns the medians, and what Python adds, as Markdown."""
    lines = ["| a step of | " + " | ".join(WAYS) + " |", "|---" * (len(WAYS) + 1) + "|"]
    for model in models:
        medians = [statistics.median(times[model, way]) * 1e3 for way in WAYS]
        more = [f"{ms:.3f} ({ms - medians[0]:+.3f}, {ms / medians[0] - 1:+.1%})" for ms in medians[1:]]
        lines.append(f"| {model} | {medians[0]:.3f} | " + " | ".join(more) + " |")
    return "\n".join(lines)


def parse(arguments):
    parser = parser_of(__doc__, steps=100, warmup=20, rounds=5)
    parser.add_argument("--only", nargs="+", choices=MODELS, default=MODELS)
    return parse_positive(parser, arguments)


def main():
    options = parse(sys.argv[1:])
    return report("python_step.py", options, measure, lambda times: table(times, options.only))


if __name__ == "__main__":
    sys.exit(main())
