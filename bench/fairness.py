#!/usr/bin/python3
"""Measures what one user's process does to another job on the same daemon. The job's two ranks all-reduce 4 KiB, again and
again, in turn

    alone     the daemon has nothing else to do
    beside    a process spins, and has nothing to do with the daemon: what the loss of a core costs
    spinning  a process of another job spins as well, and tells the daemon all the time that it waits for another
              ticket, and rings: the daemon looks at it now and then alone
    flooding  a process of another job submits as fast as it can, in its own job of one rank
    apart     the same, but at a daemon of its own: what a job that works costs, whoever serves it
    full      another user, nobody, has all the jobs, connections, tensors and arenas that he may have, and a process of his
              asks for one more of each, again and again (as root alone)

The output is Markdown: the median and the 99th percentile of the times, each the median over the rounds, and each as a multiple
of that beside.

    bench/fairness.py

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

from comparing.machine import hogs
from comparing.training_jobs import PYTHON, ROOT, JobError, bare_parser_of, environment_of, run_job
from jitter import daemon_of, percentile

RANK = str(ROOT / "bench" / "fairness_rank.py")
WAYS = ("alone", "beside", "spinning", "flooding", "apart", *(["full"] if os.geteuid() == 0 else []))
NOBODY = 65534
QUOTA = ("--quota-jobs", "4", "--quota-connections", "64", "--quota-processes", "8", "--quota-arena-bytes", "256m",
         "--quota-tensor-bytes", "8m")
FIGURES = (("p50", 50), ("p99", 99))


def launch(options, socket, ranks, *words):
    return [str(options.build / "bin" / "ruedarun"), "--no-prefix", "-np", str(ranks), "--socket", socket, PYTHON, RANK,
            *words]


@contextlib.contextmanager
def neighbour(options, socket, way):
    """Runs a job of one rank that does so until the end."""
    user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if way == "full" else {}
    with subprocess.Popen(launch(options, socket, 1, way), env=environment_of(options), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True, **user) as job:
        try:
            if not job.stdout or not job.stdout.readline():
                raise JobError(f"the neighbour ({way}) ended before it had begun")
            yield
        finally:
            job.terminate()


def run(options, way):
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        os.chmod(folder, 0o755)
        socket = stack.enter_context(daemon_of(options, folder, "", *QUOTA))
        if way == "beside":
            stack.enter_context(hogs(1))
        elif way == "apart":
            other = stack.enter_context(tempfile.TemporaryDirectory())
            stack.enter_context(neighbour(options, stack.enter_context(daemon_of(options, other, "")), "flooding"))
        elif way != "alone":
            stack.enter_context(neighbour(options, socket, way))
        said = run_job(launch(options, socket, 2, "measure", str(options.steps)), options, way)
    return json.loads(said)["seconds"]


def measure(options):
    """Returns {way: {figure: its value in each round, in seconds}}."""
    found = {way: defaultdict(list) for way in WAYS}
    for number in range(options.rounds):
        for way in WAYS:
            times = run(options, way)
            for name, percent in FIGURES:
                found[way][name].append(percentile(times, percent))
            print(f"round {number + 1}: {way}: " +
                  ", ".join(f"{name} {found[way][name][-1] * 1e6:.0f} us" for name, _ in FIGURES),
                  file=sys.stderr, flush=True)
    return found


def table(found):
    """Returns the results as Markdown."""
    lines = ["| | " + " | ".join(name for name, _ in FIGURES) + " |", "|---" * (len(FIGURES) + 1) + "|"]
    units = {name: statistics.median(found["beside"][name]) for name, _ in FIGURES}
    for way, figures in found.items():
        medians = {name: statistics.median(figures[name]) for name, _ in FIGURES}
        lines.append(f"| {way} | " +
                     " | ".join(f"{s * 1e6:.0f} us ({s / units[name]:.2f})" for name, s in medians.items()) + " |")
    return "\n".join(lines)


def main():
    options = bare_parser_of(__doc__, steps=20000, rounds=5).parse_args()
    try:
        found = measure(options)
    except JobError as error:
        print(f"fairness.py: {error}", file=sys.stderr)
        return 1
    print(f"{options.steps} all-reduces of 4 KiB; medians of {options.rounds} rounds\n")
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
