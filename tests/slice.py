#!/usr/bin/python3
"""Which sixteenth of what only tests/long.sh runs is run with a change: each landing runs another part of it, and some sixteen of
them all of it.

    slice.py                    the number of the newest commit's slice, 0 to 15
    slice.py --lines N          of the lines in standard input, those of slice N: every sixteenth
    slice.py --tests N BUILD... a line "BUILD NAME" for each test of slice N; BUILD is release, asan or tsan, built in build/BUILD

The slice is the number of commits on the way to the newest one, modulo 16, so that landings one after the other take different ones
whatever their hashes are.
"""

import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SLICES = 16


def number_of_commit():
    done = subprocess.run(["git", "rev-list", "--count", "HEAD"], cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE)
    return int(done.stdout) % SLICES


def own_labels(build):
    """Returns the labels of tests that only long.sh runs, or runs longer."""
    return {"long"} | ({f"long{build}"} if build != "release" else {"longer"})


def long_tests(build):
    """Returns the names of the build's tests that only the long tier runs, in order."""
    listed = subprocess.run(["ctest", "--show-only=json-v1"], cwd=os.path.join(ROOT, "build", build), check=True, text=True,
                            stdout=subprocess.PIPE)
    left_out = {"nosan", f"no{build}"} if build != "release" else set()
    names = []
    for test in json.loads(listed.stdout)["tests"]:
        labels = next((set(item["value"]) for item in test["properties"] if item["name"] == "LABELS"), set())
        if labels & own_labels(build) and not labels & left_out:
            names.append(test["name"])
    return sorted(names)


def every_sixteenth(items, number):
    return items[number % SLICES::SLICES]


def main():
    arguments = sys.argv[1:]
    if not arguments:
        print(number_of_commit())
    elif arguments[0] == "--lines" and len(arguments) == 2:
        sys.stdout.writelines(every_sixteenth(sys.stdin.readlines(), int(arguments[1])))
    elif arguments[0] == "--tests" and len(arguments) > 2:
        tests = [f"{build} {name}" for build in arguments[2:] for name in long_tests(build)]
        for line in every_sixteenth(tests, int(arguments[1])):
            print(line)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
