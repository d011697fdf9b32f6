#!/usr/bin/python3
"""Leaves faults out of a chaos run that fails, one by one, as long as it still fails, and prints those that it takes.

    tests/chaos/shrink.py BUILD SOURCE SEED [FAULTS]

A run counts as failing if it does so in one of --tries. Exit codes: 0 a shorter run, or the same, is printed; 1 the run does not fail.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

TEST = Path(__file__).resolve().parent / "chaos_test.py"


def shrink(faults, fails):
    """Returns a list of faults that still fails, and of which none can be left out. `fails` says whether a list fails."""
    kept = list(faults)
    for fault in list(faults):
        without = [one for one in kept if one != fault]
        if without and fails(without):
            kept = without
    return kept


def fails(options, kept):
    environment = {**os.environ, "CHAOS_SEED": str(options.seed), "CHAOS_FAULTS": str(options.faults),
                   "CHAOS_ONLY": ",".join(map(str, kept))}
    for _ in range(options.tries):
        run = subprocess.run([sys.executable, str(TEST), options.build, options.source, "RandomFaultsTest"], env=environment,
                             capture_output=True, text=True, check=False)
        if run.returncode != 0:
            print(f"{len(kept)} faults fail: {kept}", flush=True)
            return True
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("build")
    parser.add_argument("source")
    parser.add_argument("seed", type=int)
    parser.add_argument("faults", type=int, nargs="?", default=8)
    parser.add_argument("--tries", type=int, default=3)
    options = parser.parse_args()
    everything = list(range(options.faults))
    if not fails(options, everything):
        print("it does not fail")
        return 1
    kept = shrink(everything, lambda some: fails(options, some))
    print(f"CHAOS_SEED={options.seed} CHAOS_FAULTS={options.faults} CHAOS_ONLY={','.join(map(str, kept))} {TEST} "
          f"{options.build} {options.source}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
