"""Runs a rank of bench/jitter.py. It is a loop of so much arithmetic a step on one core; rank 0 prints one line of JSON, the step
times of all ranks in seconds. With --load it makes all-reduces without end, which keep the daemon busy, and prints a line when it
begins."""

import argparse
import json
import os
import sys
import time

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np  # noqa: E402

import rueda  # noqa: E402

SIDE = 128  # of the matrices: all three fit into a core's own cache


def work_of(count):
    """Does `count` multiplications of matrices."""
    a = np.full((SIDE, SIDE), 1.0, np.float32)
    out = np.empty_like(a)

    def work():
        for _ in range(count):
            np.matmul(a, a, out=out)

    return work


def calibrated(step_s):
    """Returns how many multiplications take so long here, by the fastest of many, which nothing has disturbed."""
    work = work_of(100)
    times = []
    for _ in range(50):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return max(1, round(100 * step_s / min(times)))


def step_times(count, steps):
    work = work_of(count)
    times = np.empty(steps)
    for step in range(-5, steps):
        begin = time.perf_counter()
        work()
        if step >= 0:
            times[step] = time.perf_counter() - begin
    return times


def load(megabytes):
    tensor = rueda.empty((megabytes << 18,))
    tensor[:] = 1.0
    rueda.allreduce_(tensor, name="load")
    print("loading", flush=True)
    while True:
        rueda.allreduce_(tensor, name="load")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--load", type=int, metavar="MEGABYTES")
    parser.add_argument("--calibrate", type=float, metavar="SECONDS", help="print how much work takes so long, and end")
    parser.add_argument("--work", type=int)
    parser.add_argument("--steps", type=int)
    arguments = parser.parse_args()
    if arguments.calibrate:
        print(json.dumps({"work": calibrated(arguments.calibrate)}))
        return 0
    rueda.init()
    if arguments.load:
        load(arguments.load)
    rueda.allreduce(np.zeros(1, np.float32), name="begin")
    times = rueda.allgather(step_times(arguments.work, arguments.steps), name="times")
    if rueda.rank() == 0:
        print(json.dumps({"seconds": times.tolist()}))
    rueda.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
