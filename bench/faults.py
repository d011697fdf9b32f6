#!/usr/bin/python3
"""Makes faults in a job that goes on, one after the other, and measures what each costs the others. On Rueda's side an elastic job
(ruedarun --min-np), beside it PyTorch's Gloo backend under torchrun, which starts all processes again.

    bench/faults.py                                                     # all that is below; an hour, of a machine that does nothing else
    bench/faults.py --layouts 4x1 --kinds daemon,coordinator --faults 20

Layouts are NODESxRANKS, on virtual nodes of this machine. Kinds:

    rank                 a rank is killed, one slot after the other; it is started again
    rank 0               the same, whichever process is rank 0 then
    needed rank          the same in a job whose --min-np are all of them: the others wait until it is back
    daemon               the daemon of a node is killed, but not the coordinator's; it is started again
    coordinator          the daemon of the node of rank 0 is killed
    frozen rank          a rank gets SIGSTOP, in a job with --rank-timeout of the failure timeout
    frozen daemon        a daemon gets SIGSTOP, and SIGCONT once the others have gone on
    cut 1, cut half      a node, or half of them, is cut off by routes, and comes back once the others have gone on; network namespaces,
                         which takes root

The output is Markdown: the median, and the 99th percentile (the longest of fewer than 100), of

    error       from the fault until the last of the others has an error in its hands
    next step   from there until the last of the others has made a step without those who are gone, its state (--state-mb) sent anew
    taken in    from the first call of the process in a dead one's place until all have made a step with it
    standstill  of that, the time in which the others made no step: they leave, take part again, and get the state
    back        until all ranks have made a step together again: from the fault, or from the end of a frozen daemon's or a cut's
    ended       the most other processes that ended by one fault

The others are those whose process, node or daemon the fault did not hit. Gloo's processes are all started again, so what comes after an
error begins there with Python and PyTorch.

Exit codes: 0; 1 an error, among them two sides that both went on; 2 a wrong command line.
"""

import argparse
import os
import signal
import sys
from pathlib import Path

from comparing.network import CompareError
from comparing.training_jobs import ROOT, JobError
from faulting.events import head, row
from faulting.kinds import GLOO_KINDS, KINDS, OF_SEVERAL_NODES, measure, measure_gloo


def tell(what, figures):
    text = ", ".join(f"{name} {value if name == 'ended' else f'{value:.3f} s'}" for name, value in figures.items())
    print(f"{what}: {text}", file=sys.stderr, flush=True)


def layout_of(text):
    nodes, _, ranks = text.partition("x")
    if not (nodes.isdigit() and ranks.isdigit() and int(nodes) >= 1 and int(nodes) * int(ranks) >= 2):
        raise argparse.ArgumentTypeError(f"{text} is not NODESxRANKS with two ranks or more")
    return int(nodes), int(ranks)


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release", help="has bin/ and lib/")
    parser.add_argument("--layouts", type=lambda text: [layout_of(part) for part in text.split(",")], default=[(4, 1), (2, 2)])
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS), help="by commas")
    parser.add_argument("--faults", type=int, default=100, help="of each kind and layout")
    parser.add_argument("--slow-faults", type=int, help="of the kinds that wait for the failure timeout; default: --faults")
    parser.add_argument("--gloo-faults", type=int, default=20)
    parser.add_argument("--state-mb", type=int, default=204, help="what each generation begins with")
    parser.add_argument("--failure-timeout", type=float, default=5, help="seconds")
    parser.add_argument("--sides", default="rueda,gloo", help="which are measured, by commas")
    options = parser.parse_args(arguments)
    unknown = [kind for kind in options.kinds if kind not in KINDS]
    options.sides = set(options.sides.split(","))
    if unknown or not options.sides <= {"rueda", "gloo"}:
        parser.error(f"--kinds are {', '.join(KINDS)}, and --sides are rueda and gloo")
    if min(options.faults, options.state_mb, options.gloo_faults) < 1 or (options.slow_faults or 1) < 1:
        parser.error("--faults, --slow-faults, --gloo-faults and --state-mb are 1 at least")
    return options


def slow(kind):
    return kind.startswith(("frozen", "cut"))


def main():
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # What has been started ends with it.
    faults = options.faults
    print(f"{os.cpu_count()} CPUs, {options.state_mb} MB of state, a failure timeout of {options.failure_timeout:g} s\n\n{head()}", flush=True)
    try:
        for nodes, ranks in options.layouts if "rueda" in options.sides else []:
            for kind in options.kinds:
                if kind in OF_SEVERAL_NODES and nodes < 2:
                    continue
                options.faults = options.slow_faults or faults if slow(kind) else faults
                print(row(f"{nodes} x {ranks}: {kind}", measure(options, (nodes, ranks), kind, tell)), flush=True)
        for kind in GLOO_KINDS if "gloo" in options.sides else []:
            print(row(f"Gloo, torchrun, 1 x 4: {kind}", measure_gloo(options, (1, 4), kind, tell)), flush=True)
    except (JobError, CompareError) as error:
        print(f"faults.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
