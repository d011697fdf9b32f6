#!/usr/bin/python3
"""Measures steps of training by fit() of Keras 2, of ranks on one machine: through rueda.tensorflow.keras, and beside it, in the same
run and in turn, by TensorFlow's own MultiWorkerMirroredStrategy (its ring over gRPC). The output is Markdown: medians over the
rounds of the steps a second of the slowest rank, and how many times as many Rueda makes.

    "$(tests/tensorflow/tensorflow.sh 2.21.0)" -m pip install tf-keras==2.21.0        # once
    bench/tensorflow_training.py "$(tests/tensorflow/tensorflow.sh 2.21.0)"           # 25 million parameters

Exit codes: 0; 1 an error, or ranks whose weights differ; 2 a wrong command line."""

import json
import re
import socket
import statistics
import sys
from collections import defaultdict

from comparing.training_jobs import ROOT, JobError, bare_parser_of, report, ruedarun, run_job

WAYS = {"rueda": "rueda.tensorflow.keras", "strategy": "MultiWorkerMirroredStrategy"}


def free_ports(count):
    """Returns the first of so many ports in a row that nobody listens on."""
    for first in range(21000, 32000, count):
        sockets = [socket.socket() for _ in range(count)]
        try:
            for number, one in enumerate(sockets):
                one.bind(("127.0.0.1", first + number))
            return first
        except OSError:
            pass
        finally:
            for one in sockets:
                one.close()
    raise JobError("there are no free ports from 21000 to 32000")


def run(options, way):
    """Returns the steps a second of the slowest rank."""
    command = [*ruedarun(options), options.python, str(ROOT / "bench" / "tensorflow_training_rank.py"), way, str(options.layers),
               str(options.width), str(options.batch), str(options.steps), str(options.warmup), str(free_ports(options.ranks))]
    said = run_job(command, options, way)
    results = [json.loads(line) for line in re.findall(r"^\{.*\}$", said, re.MULTILINE)]
    if len(results) != options.ranks:
        raise JobError(f"{way}: {len(results)} of {options.ranks} ranks have printed a result:\n{said}")
    if len({one["sum"] for one in results}) != 1:
        raise JobError(f"{way}: the weights of ranks differ: {results}")
    options.parameters = results[0]["parameters"]
    return min(one["steps_a_second"] for one in results)


def measure(options):
    """Returns steps a second by way: one a round, in turn."""
    rates = defaultdict(list)
    for number in range(options.rounds):
        for way in WAYS:
            rates[way].append(run(options, way))
        print(f"round {number + 1}: " + ", ".join(f"{way} {rates[way][-1]:.3f}" for way in WAYS), file=sys.stderr, flush=True)
    return rates


def table(rates, options):
    """Returns the medians and the median of the ratios, as Markdown."""
    ratio = statistics.median(mine / theirs for mine, theirs in zip(rates["rueda"], rates["strategy"]))
    medians = [statistics.median(rates[way]) for way in WAYS]
    return "\n".join(["| parameters | rows a rank | " + " | ".join(f"{one}, steps/s" for one in WAYS.values()) + " | times as many |",
                      "|---" * 5 + "|",
                      f"| {options.parameters:,} | {options.batch} | {medians[0]:.2f} | {medians[1]:.2f} | {ratio:.1f} × |"])


def parse(arguments):
    parser = bare_parser_of(__doc__, steps=20, rounds=3)
    parser.add_argument("python", help="one that has TensorFlow and tf-keras")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=8, help="rows of each rank in a step")
    parser.add_argument("--warmup", type=int, default=5, help="steps before them")
    options = parser.parse_args(arguments)
    options.nodes = 1
    if min(options.ranks, options.steps, options.rounds, options.layers, options.width, options.batch, options.warmup) < 1:
        parser.error("all numbers must be 1 at least")
    return options


def main():
    options = parse(sys.argv[1:])
    return report("tensorflow_training.py", options, measure, lambda rates: table(rates, options))


if __name__ == "__main__":
    sys.exit(main())
