#!/usr/bin/python3
"""Runs a test of this folder, in whichever room it is: run.py NAME BUILD SOURCE [arguments of unittest]. Tests may import what is
in support/ and what is beside them."""

import os
import runpy
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def find(name):
    for folder, _, files in os.walk(HERE):
        if f"{name}.py" in files:
            return os.path.join(folder, f"{name}.py")
    sys.exit(f"{sys.argv[0]}: there is no {name}.py in {HERE} or below")


def main():
    path = find(sys.argv[1])
    sys.path[0:1] = [os.path.dirname(path), os.path.join(HERE, "support")]
    sys.argv[:2] = [path]
    runpy.run_path(path, run_name="__main__")


if __name__ == "__main__":
    main()
