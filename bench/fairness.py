#!/usr/bin/python3
"""Measures what somebody who means it no good does, by way of a daemon, to another job there. The job's two ranks all-reduce
4 KiB, again and again, and then 64 MiB, while one neighbour is there at a time:

    alone      nobody; the daemon has nothing else to do
    spinning   a process of another job tells the daemon all the time that it waits for another ticket, and rings: the daemon
               looks at it now and then alone
    flooding   a process of another job submits as fast as it can, in its own job of one rank
    apart      the same, but at a daemon of its own: what a job that works costs, whoever serves it
    plans      a launcher registers a job again and again, with a recorded plan of 20,000 batches and 64 ways through them
    links      a stranger opens control links without end, each with a hello and a message of a job that is none
    messages   a stranger says hello, and floods one control link with messages of a job that is none
    data       a stranger opens connections to the data port without end: half of them send garbage, half nothing
    http       a stranger does the same at the HTTP port, with requests for all metrics, and with halves of requests
    knocking   a process connects to the unix socket without end, and hangs up
    full       another user, nobody, has all the jobs, connections, tensors and arenas that he may have, and a process of his
               asks for one more of each, again and again (as root alone)
    lingering  another user, nobody, sends descriptors to the unix socket that whoever closes them last sleeps over (as root
               alone)

Every neighbour keeps to one CPU. Before each the job runs beside a process that spins on that CPU, and has nothing to do with the
daemon: what the loss of a CPU costs is in both, and what is told of the neighbour is the quotient.

The output is Markdown: the median and the 99th percentile of the times of 4 KiB and the bandwidth of 64 MiB, each the median over
the rounds, with the median of the quotients behind it; and whether the aim is kept: a 99th percentile of at most twice that beside a
process that spins, and four fifths of its bandwidth.

    bench/fairness.py
    bench/fairness.py --rounds 1 --steps 500 --ways links,data     # to see whether it runs

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

from comparing.training_jobs import PYTHON, ROOT, JobError, bare_parser_of, environment_of, run_job
from jitter import daemon_of, percentile

RANK = str(ROOT / "bench" / "fairness_rank.py")
REFERENCE = "beside"
# How each neighbour begins: as a rank of a job of its own, or as a process that is in none.
RANKS = ("spinning", "flooding", "apart", "full")
STRANGERS = ("plans", "links", "messages", "data", "http", "knocking", "lingering")
AS_ROOT = ("full", "lingering")
WAYS = ("alone", *(way for way in (*RANKS, *STRANGERS) if way not in AS_ROOT), *(AS_ROOT if os.geteuid() == 0 else ()))
NOBODY = 65534
QUOTA = ("--quota-jobs", "4", "--quota-connections", "64", "--quota-processes", "8", "--quota-arena-bytes", "256m",
         "--quota-tensor-bytes", "8m")
LARGE_BYTES = 64 << 20
MOST_P99, LEAST_BANDWIDTH = 2.0, 0.8


def launch(options, socket, ranks, *words):
    return [str(options.build / "bin" / "ruedarun"), "--no-prefix", "-np", str(ranks), "--socket", socket, PYTHON, RANK,
            *words]


def command_of(options, way, socket, addresses, folder):
    """Returns the command line of a neighbour. It prints a line when it has begun."""
    if way == REFERENCE:
        return [PYTHON, "-u", "-c", "print('spinning')\nwhile True: pass"]
    if way in RANKS:
        return launch(options, socket, 1, "flooding" if way == "apart" else way)
    if way in ("links", "messages"):
        stranger = options.build / "bin" / "integration_stranger"
        if not stranger.exists():
            raise JobError(f"{stranger} is not there: build the target integration_stranger")
        return [str(stranger), way, addresses["control"], *(["0"] if way == "links" else [])]
    if way in ("data", "http"):
        return [PYTHON, RANK, way, addresses[way]]
    if way == "plans":
        return [PYTHON, RANK, way, str(options.build / "bin" / "ruedarun"), socket, folder]
    return [PYTHON, RANK, way, socket]


@contextlib.contextmanager
def neighbour(options, way, command):
    """Runs a neighbour, on one CPU, until the end."""
    user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if way in AS_ROOT else {}
    pinned = ["taskset", "-c", str(max(os.sched_getaffinity(0))), *command]
    with subprocess.Popen(pinned, env=environment_of(options), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                          **user) as process:
        try:
            if not process.stdout or not process.stdout.readline():
                raise JobError(f"the neighbour ({way}) ended before it had begun")
            yield
            if process.poll() is not None:
                raise JobError(f"the neighbour ({way}) ended with {process.returncode} before the job did")
        finally:
            process.terminate()


def run(options, way):
    """Returns {figure: its value} of one job."""
    with contextlib.ExitStack() as stack:
        folder, other = (stack.enter_context(tempfile.TemporaryDirectory()) for _ in range(2))
        os.chmod(folder, 0o755)
        served = socket, _ = stack.enter_context(daemon_of(options, folder, "", *QUOTA))
        if way == "apart":
            served = stack.enter_context(daemon_of(options, other, ""))
        if way != "alone":
            stack.enter_context(neighbour(options, way, command_of(options, way, *served, folder)))
        said = json.loads(run_job(launch(options, socket, 2, "measure", str(options.steps), str(options.large_steps)), options, way))
    return {"p50": percentile(said["seconds"], 50), "p99": percentile(said["seconds"], 99),
            "busbw": LARGE_BYTES / statistics.median(said["large_seconds"])}


def measure(options):
    """Returns {way: [(figures, figures of the run beside a process that spins that came before it) of each round]}."""
    found = defaultdict(list)
    for number in range(options.rounds):
        for way in options.ways:
            reference = run(options, REFERENCE)
            found[way].append((run(options, way), reference))
            print(f"round {number + 1}: {way}: " + ", ".join(
                f"{name} {value / reference[name]:.2f}" for name, value in found[way][-1][0].items()), file=sys.stderr, flush=True)
    return found


def cells_of(pairs):
    """Returns the cells of a row of the table, and whether the aim is kept."""
    figures = {name: statistics.median(own[name] for own, _ in pairs) for name in pairs[0][0]}
    quotients = {name: statistics.median(own[name] / reference[name] for own, reference in pairs) for name in figures}
    is_kept = quotients["p99"] <= MOST_P99 and quotients["busbw"] >= LEAST_BANDWIDTH
    return [f"{figures['p50'] * 1e6:.0f} us ({quotients['p50']:.2f})", f"{figures['p99'] * 1e6:.0f} us ({quotients['p99']:.2f})",
            f"{figures['busbw'] / 1e9:.2f} GB/s ({quotients['busbw']:.2f})", "yes" if is_kept else "**no**"]


def table(found):
    """Returns the results as Markdown."""
    lines = ["| | 4 KiB: p50 | 4 KiB: p99 | 64 MiB: bus bandwidth | aim kept |", "|---" * 5 + "|"]
    references = [(reference, reference) for pairs in found.values() for _, reference in pairs]
    lines.append(f"| {REFERENCE} | " + " | ".join(cells_of(references)[:-1]) + " | |")
    for way, pairs in found.items():
        lines.append(f"| {way} | " + " | ".join(cells_of(pairs)) + " |")
    return "\n".join(lines)


def parse(arguments):
    parser = bare_parser_of(__doc__, steps=10000, rounds=3)
    parser.add_argument("--large-steps", type=int, default=20, help="all-reduces of 64 MiB, in each job")
    parser.add_argument("--ways", default=",".join(WAYS), help="which neighbours, with commas between")
    options = parser.parse_args(arguments)
    options.ways = options.ways.split(",")
    if unknown := set(options.ways) - set(WAYS):
        parser.error(f"there is no neighbour {', '.join(sorted(unknown))} here; there are {', '.join(WAYS)}")
    if min(options.steps, options.large_steps, options.rounds) < 1:
        parser.error("all numbers must be 1 at least")
    return options


def main():
    options = parse(sys.argv[1:])
    try:
        found = measure(options)
    except JobError as error:
        print(f"fairness.py: {error}", file=sys.stderr)
        return 1
    print(f"{options.steps} all-reduces of 4 KiB and {options.large_steps} of 64 MiB in each run; medians of {options.rounds} rounds, "
          f"on {len(os.sched_getaffinity(0))} CPUs\n")
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
