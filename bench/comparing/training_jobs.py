"""Holds what benchmarks of training through rueda.torch share: jobs under ruedarun with the build's own librueda, the arguments
that say how many, and the end of a command that prints one table."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = "/usr/bin/python3"
PATIENCE_S = 300


class JobError(Exception):
    """Says what went wrong, in words for the user."""


def ruedarun(options):
    """Returns the beginning of a job's command line."""
    return [str(options.build / "bin" / "ruedarun"), "--no-prefix", "-np", str(options.ranks), "--virtual-nodes",
            str(options.nodes)]


def environment_of(options, variables=None):
    """Returns the environment of a job: the tree's Python package and the build's library."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RUEDA_", "HOROVOD_"))}
    return {**kept, "PYTHONPATH": str(ROOT / "client" / "python"),
            "RUEDA_LIBRARY": str(options.build / "lib" / "librueda.so"), **(variables or {})}


def run_job(command, options, what, variables=None):
    """Runs a job and returns what it wrote to standard output. Raises JobError, which names `what` it was, if it fails or takes
    PATIENCE_S."""
    try:
        done = subprocess.run(command, env=environment_of(options, variables), capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise JobError(f"{what} has not ended within {PATIENCE_S} s") from error
    if done.returncode != 0:
        raise JobError(f"{what} failed with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def bare_parser_of(description, steps, rounds):
    """Returns an ArgumentParser with the arguments of every benchmark of steps, and these defaults."""
    parser = argparse.ArgumentParser(description=description.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release", help="has bin/ and lib/")
    parser.add_argument("--steps", type=int, default=steps, help="measured, in each job")
    parser.add_argument("--rounds", type=int, default=rounds)
    return parser


def parser_of(description, steps, warmup, rounds):
    """Returns the same, with the arguments of a job of several nodes."""
    parser = bare_parser_of(description, steps, rounds)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--nodes", type=int, default=2, help="virtual nodes")
    parser.add_argument("--warmup", type=int, default=warmup, help="steps before them")
    return parser


def parse_positive(parser, arguments, *names):
    """Returns the options. --ranks, --nodes, --steps, --rounds, and those in `names`, are 1 at least."""
    options = parser.parse_args(arguments)
    if min(getattr(options, name) for name in ("ranks", "nodes", "steps", "rounds", *names)) < 1:
        parser.error("all numbers must be 1 at least")
    return options


def report(program, options, measure, describe):
    """Returns the exit code of a program that prints what `describe` makes of what `measure(options)` returns."""
    try:
        measured = measure(options)
    except JobError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 1
    print(f"{options.ranks} ranks on {options.nodes} nodes; medians of {options.rounds} rounds\n")
    print(describe(measured))
    return 0
