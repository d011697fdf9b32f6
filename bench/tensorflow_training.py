#!/usr/bin/python3
"""Measures steps of training by fit() of Keras, of ranks on one machine: through rueda.tensorflow.keras, and beside it, in the same
run and in turn, by TensorFlow's own MultiWorkerMirroredStrategy (its ring over gRPC; it serves Keras 2 alone), by ranks that average
nothing, and by one process that has all ranks' rows. The output is Markdown: medians over the rounds, of the slowest rank.

    bench/tensorflow_training.py "$(tests/tensorflow/tensorflow.sh 2.21.0)"                                    # 25 million parameters
    bench/tensorflow_training.py --model resnet --keras 3 --ranks 4 --nodes 2 "$(tests/tensorflow/tensorflow.sh 2.21.0)"

Exit codes: 0; 1 an error, or ranks whose weights differ; 2 a wrong command line."""

import json
import re
import socket
import statistics
import sys
from collections import defaultdict

from comparing.training_jobs import ROOT, JobError, parser_of, report, ruedarun, run_job

WAYS = {"alone": "one process, all rows", "none": "no averaging", "rueda": "Rueda", "strategy": "MultiWorkerMirroredStrategy"}
# Of each model: rows a rank, measured steps, learning rate.
DEFAULTS = {"dense": (8, 20, 1e-3), "digits": (16, 500, 0.02), "resnet": (16, 120, 0.05)}


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


def launcher(options, way):
    command = ruedarun(options)
    return [*command[:2], "-np", "1"] if way == "alone" else command


def run(options, way):
    """Returns what ranks have printed, with the steps a second of the slowest."""
    given = {name: getattr(options, name) for name in ("model", "keras", "ranks", "batch", "steps", "warmup", "layers", "width", "intra",
                                                       "inter", "rate")}
    given.update(way=way, port=free_ports(options.ranks))
    command = [*launcher(options, way), options.python, str(ROOT / "bench" / "tensorflow_training_rank.py"), json.dumps(given)]
    said = run_job(command, options, way)
    results = [json.loads(line) for line in re.findall(r"^\{.*\}$", said, re.MULTILINE)]
    if len(results) != (1 if way == "alone" else options.ranks):
        raise JobError(f"{way}: {len(results)} of {options.ranks} ranks have printed a result:\n{said}")
    if way != "none" and len({one["sum"] for one in results}) != 1:
        raise JobError(f"{way}: the weights of ranks differ: {results}")
    return min(results, key=lambda one: one["steps_a_second"])


def measure(options):
    """Returns results by way: one a round, in turn."""
    results = defaultdict(list)
    for number in range(options.rounds):
        for way in options.ways:
            results[way].append(run(options, way))
        print(f"round {number + 1}: " + ", ".join(f"{way} {results[way][-1]['steps_a_second']:.3f}" for way in options.ways),
              file=sys.stderr, flush=True)
    return results


def compared(rates, bare):
    """Returns what a way's rates are beside those of no averaging in the same rounds, by medians: the share, and the milliseconds of a
    step that come on top, with their share of it. The machine's speed may differ between rounds."""
    beyond = [(1000 / one - 1000 / other, 100 * (1 - one / other)) for one, other in zip(rates, bare)]
    milliseconds, percent = (statistics.median(column) for column in zip(*beyond))
    return f"{100 - percent:.0f} %", f"{milliseconds:.1f} ({percent:.0f} %)"


def table(results, options):
    """Returns the medians, and how many times as many steps Rueda makes as the strategy, as Markdown."""
    rates = {way: [one["steps_a_second"] for one in found] for way, found in results.items()}
    has_accuracy = options.model != "dense"
    lines = [f"{options.model}, Keras {options.keras}, {results['none'][0]['parameters']:,} parameters, {options.batch} rows a rank\n",
             "| | steps/s | rows/s | of no averaging | ms a step | of them beyond no averaging |" + (" accuracy |" if has_accuracy else ""),
             "|---" * (7 if has_accuracy else 6) + "|"]
    for way, found in rates.items():
        rate = statistics.median(found)
        share, beyond = ("–", "–") if way in ("alone", "none") else compared(found, rates["none"])
        cells = [WAYS[way], f"{rate:.2f}", f"{rate * options.batch * options.ranks:.0f}", share, f"{1000 / rate:.1f}", beyond]
        if has_accuracy:
            cells.append(f"{100 * statistics.median(one['accuracy'] for one in results[way]):.1f} %")
        lines.append("| " + " | ".join(cells) + " |")
    if "strategy" in rates:
        ratios = sorted(mine / theirs for mine, theirs in zip(rates["rueda"], rates["strategy"]))
        lines.append(f"\nRueda makes {statistics.median(ratios):.1f} × as many steps as the strategy ({ratios[0]:.1f} to {ratios[-1]:.1f}).")
    return "\n".join(lines)


def parse(arguments):
    parser = parser_of(__doc__, steps=0, warmup=5, rounds=3)
    parser.set_defaults(ranks=2, nodes=1, steps=None)
    parser.add_argument("python", help="one that has TensorFlow, tf-keras and scikit-learn")
    parser.add_argument("--model", choices=DEFAULTS, default="dense", help="layers of --width, or handwritten digits by a small network or ResNet-20")
    parser.add_argument("--keras", type=int, choices=(2, 3), default=2)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--batch", type=int, help="rows of each rank in a step")
    parser.add_argument("--rate", type=float, help="of learning")
    parser.add_argument("--intra", type=int, default=1, help="threads of each rank within an op")
    parser.add_argument("--inter", type=int, default=2, help="threads of each rank for ops")
    options = parser.parse_args(arguments)
    for name, value in zip(("batch", "steps", "rate"), DEFAULTS[options.model]):
        if getattr(options, name) is None:
            setattr(options, name, value)
    if min(getattr(options, name) for name in ("ranks", "nodes", "steps", "rounds", "warmup", "layers", "width", "batch", "intra", "inter")) < 1:
        parser.error("all numbers must be 1 at least")
    options.ways = [way for way in WAYS if way != "strategy" or options.keras == 2]
    return options


def main():
    options = parse(sys.argv[1:])
    return report("tensorflow_training.py", options, measure, lambda results: table(results, options))


if __name__ == "__main__":
    sys.exit(main())
