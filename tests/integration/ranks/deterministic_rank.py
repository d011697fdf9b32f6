"""Runs a rank that adds up float32 values whose sum depends on the order of the additions, and that submits them at times which another
seed gives. It says a line with the hash of each result, and ends with "ok".

deterministic_rank.py VALUES TIMES    two seeds

A line is "KIND STEP.NAME HASH", where KIND is "all" for what all ranks have alike, and "own" for a rank's part. Tensors that are reduced
alone and in a group have the same values, so "tensor" and "grouped" with the same number differ only by their batch."""

import hashlib
import random
import sys
import time

import numpy as np
import rueda

SIZES = (1, 3, 1000, 4097, 30_011, 100_003, 300_007)  # by the pairwise algorithms and round the ring
GROUPED = 5  # so many of them are also reduced in a group
STEPS = 6  # after the third the schedule is locked
MOST_PAUSE_S = 0.004

values_seed, times_seed = map(int, sys.argv[1:])


def values(step, number):
    """Returns what this rank gives, of which the mantissas are all in use."""
    return np.random.default_rng((values_seed, step, number, rueda.rank())).standard_normal(SIZES[number], np.float32)


def say(kind, step, name, result):
    print(kind, f"{step}.{name}", hashlib.sha256(result.tobytes()).hexdigest()[:16], flush=True)


def make_step(step, times):
    """Submits every tensor, and now and then waits for one before the next is submitted."""
    handles = {}
    results = {}
    for number in range(len(SIZES)):
        if times.random() < 0.5:
            time.sleep(times.uniform(0, MOST_PAUSE_S))
        name = f"tensor{number}"
        handles[name] = rueda.allreduce_async(values(step, number), name=name, op=rueda.Sum)
        if times.random() < 0.25:
            results[name] = rueda.synchronize(handles.pop(name))
    group = rueda.grouped_allreduce_async([values(step, number) for number in range(GROUPED)], name="grouped", op=rueda.Sum)
    part = rueda.reducescatter_async(values(step, 4), name="part", op=rueda.Sum)
    results.update((name, rueda.synchronize(handle)) for name, handle in handles.items())
    results.update((f"grouped{number}", result) for number, result in enumerate(rueda.synchronize(group)))
    for name, result in sorted(results.items()):
        say("all", step, name, result)
    say("own", step, "part", rueda.synchronize(part))


def main():
    rueda.init()
    times = random.Random(f"{times_seed}.{rueda.rank()}")
    for step in range(STEPS):
        make_step(step, times)
    rueda.shutdown()
    print("ok", flush=True)


main()
