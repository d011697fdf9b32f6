#!/usr/bin/python3
"""Measures what a node's daemon does to the step times of training loops beside it, and what `ruedarun --bind` does about
that. Each loop multiplies small matrices, the same number in each step, on one core; another job keeps the daemon busy with
all-reduces. Four ways, in turn, again and again:

    alone      the daemon idles
    apart      the daemon is busy, on cores of its own, with the loops on others (ruedarun --bind)
    together   the daemon is busy, everything runs where the system puts it
    polling    the daemon idles; beside each loop something spins, as background threads do that poll

Prints Markdown: the median, the 99th percentile and the maximum of the step times, each the median over the rounds, and
each as a multiple of the median step alone.

    bench/jitter.py                  # as many loops as `apart` has cores for
    bench/jitter.py --loops 2        # more of them than that: then there is no `apart`, and that is said

Exit codes: 0; 1 an error; 2 a wrong command line.
"""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from comparing.machine import hogs
from comparing.training_jobs import PYTHON, ROOT, JobError, bare_parser_of, environment_of, run_job

RANK = str(ROOT / "bench" / "jitter_rank.py")
WAYS = ("alone", "apart", "together", "polling")
FIGURES = (("p50", 50), ("p99", 99), ("max", 100))


@contextlib.contextmanager
def daemon_of(options, folder, cpus, *more):
    """Runs a daemon that keeps to `cpus` or, if that is empty, to no CPUs, with `more` flags, and yields its socket and the
    addresses of its ports, by name."""
    socket = os.path.join(folder, "ruedad.sock")
    read_end, write_end = os.pipe()
    command = [str(options.build / "bin" / "ruedad"), "--private", "--listen-host", "127.0.0.1", "--node-id", "jitter",
               "--socket", socket, "--ready-fd", str(write_end), "--log-level", "error", "--cpus", cpus, *more]
    with subprocess.Popen(command, pass_fds=[write_end], stdin=subprocess.DEVNULL) as daemon:
        os.close(write_end)
        with os.fdopen(read_end) as ready:
            line = ready.readline()
            if not line:
                raise JobError(f"{' '.join(command)} did not serve")
        try:
            yield socket, json.loads(line)
        finally:
            daemon.terminate()


@contextlib.contextmanager
def load_of(options, socket, cpus):
    """Runs a job of two ranks that keeps the daemon busy, on the daemon's CPUs."""
    keep = ["taskset", "-c", cpus] if cpus else []
    command = [*keep, *launch(options, socket, 2), "--load", str(options.megabytes)]
    with subprocess.Popen(command, env=environment_of(options), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          text=True) as job:
        try:
            if not job.stdout.readline():
                raise JobError(f"{' '.join(command)} ended before it had begun")
            yield
        finally:
            job.terminate()


def launch(options, socket, ranks, *flags):
    return [str(options.build / "bin" / "ruedarun"), "--no-prefix", "-np", str(ranks), "--socket", socket, *flags,
            PYTHON, RANK]


def daemon_cpus(loops):
    """Returns the cores that are left for a daemon beside so many loops, in taskset's form: the last ones. Threads of one core
    stay together, and as many cores as there are loops are counted from the front. Returns None if no core is left."""
    cores = []
    for cpu in sorted(os.sched_getaffinity(0)):
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text(encoding="ascii")
        if siblings not in [core for core, _ in cores]:
            cores.append((siblings, []))
        next(members for core, members in cores if core == siblings).append(cpu)
    left = [cpu for _, members in cores[loops:] for cpu in members]
    return ",".join(map(str, left)) or None


def run(options, way, work, cpus):
    """Returns the step times of one job, in seconds, of all ranks together."""
    own_cpus = cpus if way == "apart" else ""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        socket, _ = stack.enter_context(daemon_of(options, folder, own_cpus))
        if way in ("apart", "together"):
            stack.enter_context(load_of(options, socket, own_cpus))
        if way == "polling":
            stack.enter_context(hogs(options.loops))
        command = launch(options, socket, options.loops, *(["--bind"] if way == "apart" else []))
        said = run_job([*command, "--work", str(work), "--steps", str(options.steps)], options, way)
    return json.loads(said)["seconds"]


def percentile(times, percent):
    """Returns the smallest of the times that so many percent of them do not exceed."""
    ordered = sorted(times)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def measure(options):
    """Returns {way: {figure: its value in each round, in seconds}}."""
    cpus = daemon_cpus(options.loops)
    if cpus is None:
        print(f"jitter.py: there is no core left for a daemon beside {options.loops} loops, so there is no \"apart\"",
              file=sys.stderr)
    ways = [way for way in WAYS if way != "apart" or cpus is not None]
    work = json.loads(run_job([PYTHON, RANK, "--calibrate", str(options.step_ms / 1e3)], options, "calibration"))["work"]
    found = {way: defaultdict(list) for way in ways}
    for number in range(options.rounds):
        for way in ways:
            times = run(options, way, work, cpus)
            for name, percent in FIGURES:
                found[way][name].append(percentile(times, percent))
            print(f"round {number + 1}: {way}: " +
                  ", ".join(f"{name} {found[way][name][-1] * 1e3:.2f} ms" for name, _ in FIGURES),
                  file=sys.stderr, flush=True)
    return found


def table(found):
    """Returns the results as Markdown."""
    lines = ["| | " + " | ".join(name for name, _ in FIGURES) + " |", "|---" * (len(FIGURES) + 1) + "|"]
    unit = statistics.median(found["alone"]["p50"])
    for way, figures in found.items():
        medians = [statistics.median(figures[name]) for name, _ in FIGURES]
        lines.append(f"| {way} | " + " | ".join(f"{s * 1e3:.2f} ms ({s / unit:.2f})" for s in medians) + " |")
    return "\n".join(lines)


def parse(arguments):
    parser = bare_parser_of(__doc__, steps=500, rounds=5)
    parser.add_argument("--loops", type=int, default=max(1, len(os.sched_getaffinity(0)) - 1))
    parser.add_argument("--step-ms", type=float, default=20, help="of a loop that nothing disturbs")
    parser.add_argument("--megabytes", type=int, default=16, help="of what keeps the daemon busy")
    options = parser.parse_args(arguments)
    if min(options.loops, options.step_ms, options.megabytes, options.steps, options.rounds) <= 0:
        parser.error("all numbers must be more than 0")
    return options


def main():
    options = parse(sys.argv[1:])
    try:
        found = measure(options)
    except JobError as error:
        print(f"jitter.py: {error}", file=sys.stderr)
        return 1
    print(f"{options.loops} loops on {len(os.sched_getaffinity(0))} CPUs, {options.steps} steps of "
          f"{options.step_ms:g} ms; medians of {options.rounds} rounds\n")
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
