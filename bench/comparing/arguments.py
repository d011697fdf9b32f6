"""Defines the arguments that compare.py and growth.py have in common."""

import argparse

from .programs import default_bin_dir
from .sides import NAMES


def parse_names(text):
    names = text.split(",")
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no side '{unknown[0]}': take of {', '.join(NAMES)}")
    return names


def make_parser(text, rounds):
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=parse_names, metavar="NAMES",
                        help=f"these sides alone, separated by commas, of {', '.join(NAMES)}")
    parser.add_argument("--rounds", type=int, default=rounds, help=f"of all sides ({rounds})")
    parser.add_argument("--iters", type=int, default=0, help="measured iterations; 0: by size (200, 50 or 20)")
    parser.add_argument("--warmup", type=int, default=5, help="iterations before them (5)")
    parser.add_argument("--repeats", type=int, default=3, help="of a disturbed run, at most (3)")
    parser.add_argument("--busy-ok", action="store_true", help="go on though the machine is busy with other work")
    parser.add_argument("--congestion", default="system", metavar="NAME",
                        help="TCP congestion control of all sides: reno, bbr, or the system's (system); runs in "
                             "a network namespace, and needs root")
    parser.add_argument("--timeout-s", type=int, default=600, help="for one run of one side (600)")
    parser.add_argument("--bin-dir", default=default_bin_dir(),
                        help="with ruedarun and rueda-bench (build/release/bin of this checkout)")
    parser.add_argument("--json", metavar="FILE", help="write everything measured")
    return parser


def check(parser, options, *at_least_one):
    for name in (*at_least_one, "rounds"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
