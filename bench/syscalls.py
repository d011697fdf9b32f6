#!/usr/bin/python3
"""Counts what an all-reduce costs in system calls and in switches from one thread to the next, over all processes: ranks, daemons and
the launcher. Each count is that of a run of rueda-bench with many operations less that of one with few, over the operations that the
first has more, and the median over the rounds. Two eBPF programs count in the kernel (comparing/kernel_counts.py), so that nothing is
stopped at a call as under strace, and a thread that looks before it sleeps does not find less time passed than it would. It takes root.

    bench/syscalls.py                                        # a table for the works below, and one of the calls of each
    bench/syscalls.py --works 4K:1 --rounds 5 --json all.json
    bench/syscalls.py --before OTHER/build/release/bin       # beside another build, in turn

A work is SIZE:NODES, with --np ranks in all. Calls are also counted without sched_yield, by which threads wait that have something to
wait for: how often depends on who else wants the CPUs, and the others hardly do.

Exit codes: 0; 1 an error; 2 a wrong command line; 3 the kernel does not let this process count."""

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from comparing.kernel_counts import SLEPT, SWITCHES, CannotCount, KernelCounts

ROOT = Path(__file__).resolve().parents[1]
WORKS = ("4K:1", "4K:2", "1M:2", "64M:2")
SUFFIXES = {"": 1, "K": 1 << 10, "M": 1 << 20}
MOST_BYTES, MOST_OPERATIONS, FEWEST_OPERATIONS = 5 << 29, 4000, 20
WARM_UP = 50
POLL_S = 0.02
TIMEOUT_S = 120
YIELD = "sched_yield"


class RunError(Exception):
    """A run failed; the text says how."""


def work_of(text):
    """Returns (size as it is written, bytes, nodes) of 4K:2."""
    found = re.fullmatch(r"(([1-9]\d*)([KM]?)):([12])", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text} is no work such as 4K:1 or 64M:2")
    return found.group(1), int(found.group(2)) * SUFFIXES[found.group(3)], int(found.group(4))


def family_of(pid):
    """Returns the process and its descendants that live."""
    parents, family = {}, {pid}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parents[int(entry)] = int(Path("/proc", entry, "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue  # it has ended meanwhile
    while True:
        more = {child for child, parent in parents.items() if parent in family} - family
        if not more:
            return family
        family |= more


def counts_of(bin_folder, size, nodes, ranks, iterations):
    """Runs so many operations. Returns {(what the thread is called, call or kind of switch): how often} over all processes of the job."""
    command = [str(bin_folder / "ruedarun"), "-np", str(ranks), *(["--virtual-nodes", str(nodes)] if nodes > 1 else []),
               str(bin_folder / "rueda-bench"), "allreduce", "--sizes", size, "--inplace", "--warmup", str(WARM_UP), "--iters",
               str(iterations)]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(bin_folder.parent / "lib")}
    family, deadline = set(), time.monotonic() + TIMEOUT_S
    with KernelCounts() as counting:
        job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
                               env=environment, start_new_session=True)
        try:
            while job.poll() is None and time.monotonic() < deadline:
                family |= family_of(job.pid)
                time.sleep(POLL_S)
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGTERM)
            output = job.communicate()[0]
        total = counting.now()
    if job.returncode != 0:
        raise RunError(f"{' '.join(command)} failed: {output[-2000:]}")
    found = Counter()
    for (pid, thread, what), count in total.items():
        if pid in family:
            found[thread, what] += count
    return found


def measure(bin_folder, work, ranks):
    """Returns {(thread, what): how often an operation} of one round."""
    size, size_bytes, nodes = work
    many = max(FEWEST_OPERATIONS, min(MOST_OPERATIONS, MOST_BYTES // size_bytes))
    few = many // 10
    less, more = (counts_of(bin_folder, size, nodes, ranks, number) for number in (few, many))
    return {key: (more[key] - less[key]) / (many - few) for key in more}


def total_of(counts, wanted):
    return sum(count for (_, what), count in counts.items() if wanted(what))


def figures_of(rounds):
    """Returns the medians over the rounds: calls, calls but for yields, switches, those among them that sleep, and each call."""
    def median(wanted):
        return round(statistics.median(total_of(counts, wanted) for counts in rounds), 2)

    keys = {key for counts in rounds for key in counts}
    each = {f"{thread} {what}": round(statistics.median(counts.get((thread, what), 0) for counts in rounds), 2)
            for thread, what in keys}
    return {"calls": median(lambda what: what not in SWITCHES.values()),
            "calls_but_yields": median(lambda what: what not in SWITCHES.values() and what != YIELD),
            "switches": median(lambda what: what in SWITCHES.values()),
            "sleeps": median(lambda what: what == SWITCHES[SLEPT]),
            "each": {key: count for key, count in sorted(each.items(), key=lambda item: -item[1]) if count >= 0.05}}


def table_of(results):
    """Returns lines of Markdown: a row for each work and build, then one with the calls of each."""
    yield "| bytes | nodes | build | system calls | but for yields | switches | of them into sleep |"
    yield "|---|---|---|---|---|---|---|"
    for one in results:
        yield (f"| {one['size']} | {one['nodes']} | {one['build']} | {one['calls']:.1f} | {one['calls_but_yields']:.1f} | "
               f"{one['switches']:.1f} | {one['sleeps']:.1f} |")
    yield ""
    yield "| bytes | nodes | build | each, an operation |"
    yield "|---|---|---|---|"
    for one in results:
        each = ", ".join(f"{key} {count:.2f}" for key, count in one["each"].items())
        yield f"| {one['size']} | {one['nodes']} | {one['build']} | {each} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--works", nargs="+", type=work_of, default=[work_of(text) for text in WORKS],
                        help=f"what to count, SIZE:NODES ({' '.join(WORKS)})")
    parser.add_argument("--np", type=int, default=4, help="ranks in all (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each kind, in turn (%(default)s)")
    parser.add_argument("--bin", type=Path, default=ROOT / "build" / "release" / "bin", help="the build's programs (%(default)s)")
    parser.add_argument("--before", type=Path, help="another build's programs, to count beside it")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args()
    if options.np < 2 or options.np % 2 or options.rounds < 1:
        parser.error("--np must be even, and both it and --rounds above 0")
    builds = {**({"before": options.before} if options.before else {}), "this": options.bin}
    rounds = {(work, build): [] for work in options.works for build in builds}
    try:
        for number in range(options.rounds):
            for work, build in rounds:
                rounds[work, build].append(measure(builds[build].resolve(), work, options.np))
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    except CannotCount as error:
        print(error, file=sys.stderr)
        return 3
    except (RunError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    results = [{"size": size, "nodes": nodes, "build": build, **figures_of(counts)}
               for ((size, _, nodes), build), counts in rounds.items()]
    for line in table_of(results):
        print(line)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
