#!/usr/bin/python3
"""How slow this machine is now: the time of a fixed piece of work, as a multiple of what it took on the machine that
tests/budgets.txt was written on.

    speed.py            prints the number; 1 is that machine's, 2 one that takes twice as long

The work is done once on each core at a time, and is what tests mostly do: they start programs, pass a word between processes,
interpret, and copy memory. A kind counts as much as another: the number is the mean of their multiples. It takes some seconds.
"""

import os
import statistics
import subprocess
import sys
import time

PROGRAMS, WORDS, ADDITIONS, COPIES, COPIED = 30, 20_000, 3_000_000, 40, 32 << 20
# Seconds on 2 virtual CPUs of an AMD EPYC (Zen 3), quiet, 27 November 2026.
REFERENCE = {"programs": 0.46, "words": 0.20, "additions": 0.21, "copies": 0.37}


def start_programs():
    for _ in range(PROGRAMS):
        subprocess.run([sys.executable, "-S", "-E", "-c", ""], check=True)


def pass_words():
    there, here = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        for _ in range(WORDS):
            os.write(here[1], os.read(there[0], 1))
        os._exit(0)
    for _ in range(WORDS):
        os.write(there[1], b"x")
        os.read(here[0], 1)
    os.waitpid(child, 0)
    for end in (*there, *here):
        os.close(end)


def add():
    total = 0
    for number in range(ADDITIONS):
        total += number


def copy():
    source, target = bytearray(COPIED), bytearray(COPIED)
    for _ in range(COPIES):
        target[:] = source


WORK = {"programs": start_programs, "words": pass_words, "additions": add, "copies": copy}


def seconds_of(work):
    """Returns the mean time of a piece of work that each core does at the same time."""
    ends = []
    for _ in range(os.cpu_count() or 1):
        reader, writer = os.pipe()
        if os.fork() == 0:
            try:
                began = time.perf_counter()
                work()
                os.write(writer, str(time.perf_counter() - began).encode())
            finally:
                os._exit(0)
        os.close(writer)
        ends.append(reader)
    took = []
    for reader in ends:
        with os.fdopen(reader) as file:
            took.append(float(file.read()))
        os.wait()
    return statistics.mean(took)


def measure():
    """Returns the seconds of each piece of work."""
    return {name: seconds_of(work) for name, work in WORK.items()}


def multiple_of(seconds):
    return statistics.mean(seconds[name] / REFERENCE[name] for name in REFERENCE)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    print(f"{multiple_of(measure()):.2f}")
