#!/usr/bin/python3
"""Measures an all-reduce of float32 in JAX, of ranks on one node: in a compiled program and eagerly through rueda.jax, and beside them,
in the same run and in turn, JAX's own psum through librueda_mpi and over Gloo. The output is Markdown: medians over the rounds of what an
all-reduce takes on the slowest rank, and Gloo's time over Rueda's.

    bench/jax_allreduce.py "$(tests/jax/jax.sh newest)"          # the Python of an environment that has JAX
    bench/jax_allreduce.py "$(tests/jax/jax.sh newest)" --sizes 1M 64M --ranks 4 --rounds 9

The aim is 3 times at 64 MiB. The build must have librueda_jax.so (docs/jax.md).

Exit codes: 0; 1 an error or a wrong result; 2 a wrong command line."""

import json
import re
import statistics
import sys
from collections import defaultdict

from comparing.training_jobs import ROOT, JobError, bare_parser_of, report, ruedarun, run_job

WAYS = {"rueda": "rueda.jax, compiled", "rueda-eager": "rueda.jax, eager", "mpi": "psum through librueda_mpi", "gloo": "psum over Gloo"}
SUFFIXES = {"": 1, "K": 1 << 10, "M": 1 << 20}


def bytes_of(text):
    """Returns the number that 4K or 64M stands for."""
    found = re.fullmatch(r"(\d+)([KM]?)", text)
    if found is None or int(found.group(1)) == 0:
        raise ValueError(f"{text} is not a size such as 4K or 64M")
    return int(found.group(1)) * SUFFIXES[found.group(2)]


def run(options, size, way):
    """Returns what an all-reduce takes on the slowest rank, in seconds."""
    command = [*ruedarun(options), options.python, str(ROOT / "bench" / "jax_allreduce_rank.py"), way, str(bytes_of(size)),
               str(options.steps)]
    # jaxlib reads this one while it is imported.
    library = {"MPITRAMPOLINE_LIB": str(options.build / "lib" / "librueda_mpi.so")} if way == "mpi" else None
    said = run_job(command, options, f"{size}, {way}", library)
    times = [json.loads(line)["seconds"] for line in re.findall(r"^\{.*\}$", said, re.MULTILINE)]
    if len(times) != options.ranks:
        raise JobError(f"{size}, {way}: {len(times)} of {options.ranks} ranks have printed a result:\n{said}")
    return max(times)


def measure(options):
    """Returns times, in seconds, by (size, way): one a round, in turn."""
    times = defaultdict(list)
    for number in range(options.rounds):
        for size in options.sizes:
            for way in WAYS:
                times[size, way].append(run(options, size, way))
            print(f"round {number + 1}: {size}: " + ", ".join(f"{way} {times[size, way][-1] * 1e3:.3f} ms" for way in WAYS),
                  file=sys.stderr, flush=True)
    return times


def table(times, sizes):
    """Returns the medians, and Gloo's over Rueda's, as Markdown."""
    lines = ["| size of a rank's array | " + " | ".join(WAYS.values()) + " | Gloo over compiled | Gloo over eager | Gloo over librueda_mpi |",
             "|---" * (len(WAYS) + 4) + "|"]
    for size in sizes:
        medians = {way: statistics.median(times[size, way]) for way in WAYS}
        lines.append(f"| {size} | " + " | ".join(f"{one * 1e3:.3f} ms" for one in medians.values()) +
                     f" | {medians['gloo'] / medians['rueda']:.1f} × | {medians['gloo'] / medians['rueda-eager']:.1f} ×"
                     f" | {medians['gloo'] / medians['mpi']:.1f} × |")
    return "\n".join(lines)


def parse(arguments):
    parser = bare_parser_of(__doc__, steps=20, rounds=5)
    parser.add_argument("python", help="one that has JAX")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--sizes", nargs="+", default=["64M"])
    options = parser.parse_args(arguments)
    options.nodes = 1
    if min(options.ranks, options.steps, options.rounds) < 1:
        parser.error("all numbers must be 1 at least")
    try:
        for size in options.sizes:
            bytes_of(size)
    except ValueError as error:
        parser.error(str(error))
    return options


def main():
    options = parse(sys.argv[1:])
    return report("jax_allreduce.py", options, measure, lambda times: table(times, options.sizes))


if __name__ == "__main__":
    sys.exit(main())
