#!/usr/bin/python3
"""Measures Rueda and its peers side by side, on this machine, in one run.

Every round measures each side once, in alternating order, with the same sizes, ranks and number of iterations (float32, sum, in
place; times are medians of the slowest rank). The output, in Markdown, is the median over the rounds with its range, and the
ratio of the sides round by round. The limits of the machine are measured in the same run, and the floor, a bare program that
moves the same bytes and waits for nothing, among the sides. A round in which the machine was busy with something else is
repeated.

The sides are rueda, gloo (PyTorch's), horovod (on Gloo, which bench/install_horovod.sh installs), horovod-0.1ms (the same with
HOROVOD_CYCLE_TIME=0.1; only when it is named), mpi-shm and mpi-tcp (Open MPI over shared memory and over TCP), ring-shm and ring-tcp
(a ring of our own over Open MPI's messages, as baidu-allreduce has it), floor; and, with --model, ddp. A side that is not
installed is named, and left out.

--model compares a training step: each tensor of the model is a submission of its own for Rueda, in an arena, and for Horovod;
Gloo and Open MPI get all of them as one flat buffer, in one all-reduce; ddp is PyTorch's DistributedDataParallel on Gloo.
--coordination measures Rueda once a mode, --streams once a number of TCP streams, --wire once a wire dtype, --preset,
--algorithm, --transport and --data-protection once a name, --fusion once a threshold; the first one is compared with the others, too. --before
measures another build of Rueda in turn with this one.

Exit codes: 0; 1 an error or a wrong result; 2 a wrong command line; 3 a ratio to a peer below --require-ratio."""

import json
import os
import signal
import sys
from pathlib import Path

from comparing import plot, report, rounds
from comparing.arguments import check, make_parser
from comparing.machine import require_quiet
from comparing.network import open_network
from comparing.processes import CompareError
from comparing.programs import measure_limits, read_model
from comparing.sides import DEFAULT_OF_MODELS, DEFAULT_OF_SIZES, make_sides
from comparing.work import Work, parse_rate, parse_sizes


def parse_arguments(arguments):
    parser = make_parser(__doc__, rounds=5)
    parser.add_argument("--np", type=int, default=4, help="ranks (4)")
    parser.add_argument("--nodes", type=int, default=2, help="nodes, all on this machine (2)")
    parser.add_argument("--sizes", type=parse_sizes, default=[64 << 20],
                        help="bytes: a range by factor 4 as 4K-64M, or a list as 4K,1M (64M)")
    parser.add_argument("--model", help="a step of resnet50, vgg16, googlenet-aux or small1000, instead of --sizes")
    parser.add_argument("--coordination", type=lambda text: text.split(","), default=[None], metavar="MODES",
                        help="modes of Rueda, as in locked,negotiate (the daemon's default alone)")
    parser.add_argument("--streams", type=lambda text: text.split(","), default=[None], metavar="COUNTS",
                        help="TCP streams between Rueda's nodes, as in 1,4 (the daemon's default alone)")
    parser.add_argument("--wire", type=lambda text: text.split(","), default=[None], metavar="DTYPES",
                        help="what Rueda rounds to on the network, as in same,bfloat16 (nothing)")
    parser.add_argument("--preset", type=lambda text: text.split(","), default=[None], metavar="NAMES",
                        help="presets of ruedarun, as in rueda,horovod,baidu,grpc-ps (docs/lineage.md)")
    parser.add_argument("--algorithm", type=lambda text: text.split(","), default=[None], metavar="NAMES",
                        help="algorithms between Rueda's nodes, as in ring,central,central:2 (with two servers)")
    parser.add_argument("--data-protection", type=lambda text: text.split(","), default=[None], metavar="NAMES",
                        help="what protects data between Rueda's nodes, as in none,authenticate,encrypt")
    parser.add_argument("--transport", type=lambda text: text.split(","), default=[None], metavar="NAMES",
                        help="transports between Rueda's nodes, as in tcp,grpc")
    parser.add_argument("--fusion", type=lambda text: text.split(","), default=[None], metavar="SIZES",
                        help="fusion thresholds of Rueda, as in 64M,0 (0: each tensor alone); for --model")
    parser.add_argument("--before", metavar="BIN_DIR", help="another build's bin folder, measured as 'Rueda before'")
    parser.add_argument("--netns", action="store_true",
                        help="each node in a network namespace of its own, joined by veth; needs root")
    parser.add_argument("--rate", type=parse_rate, help="with --netns: shape each node's link, as 1gbit or 10gbit")
    parser.add_argument("--hogs", type=int, default=0, metavar="N",
                        help="processes beside each side that want a CPU each (0)")
    parser.add_argument("--require-ratio", type=float, metavar="X",
                        help="exit with 3 when a median ratio to a peer, which is no mode of Rueda, is below X")
    parser.add_argument("--svg", metavar="FILE", help="draw bus bandwidth over size, a curve a side")
    options = parser.parse_args(arguments)
    check(parser, options, "np", "nodes")
    if options.nodes > options.np:
        parser.error(f"--nodes {options.nodes} is more than --np {options.np}")
    if options.rate and not options.netns:
        parser.error("--rate shapes the links of --netns; loopback is left as it is")
    options.side = options.side or (DEFAULT_OF_MODELS if options.model else DEFAULT_OF_SIZES)
    return options


def make_work(options):
    work = Work(ranks=options.np, nodes=options.nodes, sizes=options.sizes, iters=options.iters,
                warmup=options.warmup, timeout_s=options.timeout_s, hogs=options.hogs)
    if options.model:
        model = read_model(options.bin_dir, options.model)
        work.model, work.sizes, work.shapes = options.model, [model["bytes"]], model["shapes"]
    return work


def choose_sides(options, work, network, log):
    """Returns the sides that can take part, and logs why the others cannot."""
    present, left_out = [], {}
    varied = ("coordination", "streams", "wire", "preset", "algorithm", "transport", "data_protection", "fusion")
    ours = {name: getattr(options, name) for name in varied}
    for side in make_sides(options.side, options.bin_dir, ours, options.before):
        why = side.missing(work, network)
        if why:
            log(f"left out: {side.name}: {why}")
            left_out[side.name] = why
        else:
            present.append(side)
    if not present:
        raise CompareError("no side is left to measure: " + "; ".join(left_out.values()))
    return present, left_out


def compare(options, log):
    if options.svg:
        plot.require_matplotlib()
    require_quiet(options.busy_ok, log)
    work = make_work(options)
    with open_network(options.nodes, options.congestion, options.netns, options.rate) as network:
        congestion = network.congestion()
        log(f"over {network.text}; TCP congestion control of all sides: {congestion}")
        sides, left_out = choose_sides(options, work, network, log)
        limits = measure_limits(options.bin_dir, network, encrypts=options.data_protection != [None])
        done = rounds.run_rounds(sides, work, network, options.rounds, options.repeats, log)
    first, *others = [side.name for side in sides]
    return {
        "setup": {"np": options.np, "nodes": options.nodes, "iters": options.iters, "warmup": options.warmup,
                  "rounds": options.rounds, "network": network.text, "congestion": congestion,
                  "model": options.model, "tensors": len(work.shapes), "hogs": options.hogs,
                  "cpus": os.cpu_count()},
        "limits": limits,
        "rows": rounds.summarize(done, work.sizes, first, others),
        "cpu_includes_daemons": all(
            result.get("cpu_includes_daemons", True) for one in done for side in sides if side.kind == "ours"
            for result in one[side.name]["results"]),
        "peers": [side.name for side in sides[1:] if side.kind == "peer"],
        "left_out": left_out,
        "rounds": done,
    }


def main(arguments=None):
    options = parse_arguments(arguments)
    # A SIGTERM must pass through the blocks that restore the machine's state.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        found = compare(options, lambda text: print(text, file=sys.stderr, flush=True))
        print(report.markdown(found), end="")
        if options.json:
            Path(options.json).write_text(json.dumps(found, indent=2) + "\n")
        if options.svg:
            plot.busbw_svg(found, options.svg)
    except (CompareError, OSError) as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return 1
    ratios = [row["ratios"][peer]["median"] for row in found["rows"] for peer in found["peers"]]
    if options.require_ratio is not None and ratios and min(ratios) < options.require_ratio:
        print(f"compare.py: the ratio {min(ratios):.2f} is below {options.require_ratio}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
