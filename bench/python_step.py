#!/usr/bin/python3
"""What Python adds to a training step: the gradient sets of ResNet-50 and of a thousand tensors of 1 KB, reduced by
`rueda-bench step` and, alternating with it, through rueda.torch: by a call for each tensor, and by one for all of them
as a group. Prints Markdown: medians over the rounds of the median step of the slowest rank, in milliseconds, and how
much more that is than without Python.

    bench/python_step.py                    # 4 ranks on 2 nodes
    bench/python_step.py --rounds 9 --only small1000

The aims: less than 10 % for ResNet-50, less than 2 ms for the thousand tensors, and no byte copied.

Exit codes: 0; 1 an error, a wrong result, or bytes that were copied; 2 a wrong command line.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON = "/usr/bin/python3"
MODELS = ("resnet50", "small1000")
WAYS = ("rueda-bench", "each", "grouped")
PATIENCE_S = 300


class StepError(Exception):
    """What went wrong, in words for the user."""


def command_of(options, model, way, json_path):
    """rueda-bench writes its result to `json_path`, a rank in Python to standard output."""
    command = [str(options.build / "bin" / "ruedarun"), "--no-prefix", "-np", str(options.ranks),
               "--virtual-nodes", str(options.nodes)]
    if way == "rueda-bench":
        return [*command, str(options.build / "bin" / "rueda-bench"), "step", "--model", model,
                "--iters", str(options.steps), "--warmup", str(options.warmup), "--json", json_path]
    command += [PYTHON, str(ROOT / "bench" / "python_step_rank.py"), "--model", model]
    command += ["--grouped"] * (way == "grouped")
    return [*command, "--steps", str(options.steps), "--warmup", str(options.warmup)]


def checked(result, model, way):
    """The result, if it is a right one."""
    for key, trouble in (("wrong", "wrong elements"), ("copied", "bytes copied")):
        if result.get(key, 0) != 0:
            raise StepError(f"{model}, {way}: {result[key]} {trouble}")
    return result


def run(options, model, way):
    """{"seconds": ..., "tensors": ..., "bytes": ...} of one job."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RUEDA_", "HOROVOD_"))}
    environment = {**kept, "PYTHONPATH": str(ROOT / "client" / "python"),
                   "RUEDA_LIBRARY": str(options.build / "lib" / "librueda.so")}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "step.json")
        done = subprocess.run(command_of(options, model, way, path), env=environment, capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False)
        text = Path(path).read_text(encoding="utf-8") if os.path.exists(path) else done.stdout
    lines = [json.loads(line) for line in re.findall(r"^\{.*\}$", text, re.MULTILINE)]
    found = [line for line in lines if "tensors" in line]
    if done.returncode != 0 or not found:
        raise StepError(f"{model}, {way} failed with {done.returncode}:\n{done.stdout}{done.stderr}")
    [result] = found
    if "time_us" in result:
        result["seconds"] = result["time_us"] / 1e6
    return checked(result, model, way)


def measure(options):
    """Step times, in seconds, by (model, way): one a round, in turn."""
    times = defaultdict(list)
    for number in range(options.rounds):
        for model in options.only:
            results = {way: run(options, model, way) for way in WAYS}
            sets = {way: (result["tensors"], result["bytes"]) for way, result in results.items()}
            if len(set(sets.values())) != 1:
                raise StepError(f"{model} is not the same set of tensors and bytes for both: {sets}")
            for way in WAYS:
                times[model, way].append(results[way]["seconds"])
            print(f"round {number + 1}: {model}: " +
                  ", ".join(f"{way} {results[way]['seconds'] * 1e3:.3f} ms" for way in WAYS),
                  file=sys.stderr, flush=True)
    return times


def table(times, models):
    """Markdown of the medians, and of what Python adds."""
    lines = ["| a step of | " + " | ".join(WAYS) + " |", "|---" * (len(WAYS) + 1) + "|"]
    for model in models:
        medians = [statistics.median(times[model, way]) * 1e3 for way in WAYS]
        more = [f"{ms:.3f} ({ms - medians[0]:+.3f}, {ms / medians[0] - 1:+.1%})" for ms in medians[1:]]
        lines.append(f"| {model} | {medians[0]:.3f} | " + " | ".join(more) + " |")
    return "\n".join(lines)


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release", help="has bin/ and lib/")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--nodes", type=int, default=2, help="virtual nodes")
    parser.add_argument("--steps", type=int, default=100, help="measured, in each job")
    parser.add_argument("--warmup", type=int, default=20, help="steps before them")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=MODELS, default=MODELS)
    options = parser.parse_args(arguments)
    if min(options.ranks, options.nodes, options.steps, options.rounds) < 1:
        parser.error("all numbers must be 1 at least")
    return options


def main():
    options = parse(sys.argv[1:])
    try:
        times = measure(options)
    except (StepError, subprocess.TimeoutExpired) as error:
        print(f"python_step.py: {error}", file=sys.stderr)
        return 1
    print(f"{options.ranks} ranks on {options.nodes} nodes; medians of {options.rounds} rounds\n")
    print(table(times, options.only))
    return 0


if __name__ == "__main__":
    sys.exit(main())
