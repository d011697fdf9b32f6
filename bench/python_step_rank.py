"""Runs a rank of bench/python_step.py, which reduces the gradient set of a model in place, as `rueda-bench step` does, through
rueda.torch. Rank 0 prints one line of JSON: the median of the slowest rank's step times, and what was reduced."""

import argparse
import json
import math
import os
import statistics
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the ranks share the cores

import torch  # noqa: E402

import rueda  # noqa: E402
import rueda.torch as hvd  # noqa: E402


def resnet50():
    """Returns the shapes of its 161 parameters, in the order of the model."""
    shapes = [(64, 3, 7, 7), (64,), (64,)]
    channels = 64
    for blocks, width in ((3, 64), (4, 128), (6, 256), (3, 512)):
        for block in range(blocks):
            for out, into, kernel in ((width, channels, 1), (width, width, 3), (4 * width, width, 1)):
                shapes += [(out, into, kernel, kernel), (out,), (out,)]
            if block == 0:
                shapes += [(4 * width, channels, 1, 1), (4 * width,), (4 * width,)]
            channels = 4 * width
    return [*shapes, (1000, channels), (1000,)]


MODELS = {"resnet50": resnet50, "small1000": lambda: [(256,)] * 1000}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--grouped", action="store_true", help="one call for all, not one for each")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--warmup", type=int, required=True)
    arguments = parser.parse_args()

    hvd.init()
    # The gradients are in the order of the backward pass: the last layer's is ready first.
    shapes = list(reversed(MODELS[arguments.model]()))
    gradients = [torch.from_numpy(rueda.empty(shape)).fill_(1.0) for shape in shapes]
    names = [f"gradient.{i}" for i in range(len(gradients))]
    seconds = []
    copied_before = 0
    for step in range(arguments.warmup + arguments.steps):
        if step in (0, arguments.warmup):
            hvd.barrier()
            copied_before = rueda.stats().bytes_copied_in
        begin = time.perf_counter()
        if arguments.grouped:
            handles = [hvd.grouped_allreduce_async_(gradients, name="gradients")]
        else:
            handles = [hvd.allreduce_async_(tensor, name=name) for tensor, name in zip(gradients, names)]
        for handle in handles:
            hvd.synchronize(handle)
        if step >= arguments.warmup:
            seconds.append(time.perf_counter() - begin)
    copied = rueda.stats().bytes_copied_in - copied_before
    wrong = sum(int((tensor != 1.0).sum()) for tensor in gradients)
    slowest = hvd.allreduce(torch.tensor(seconds, dtype=torch.float64), op=hvd.Max, name="seconds")
    if hvd.rank() == 0:
        print(json.dumps({"seconds": statistics.median(slowest.tolist()), "tensors": len(shapes), "copied": copied,
                          "bytes": 4 * sum(math.prod(shape) for shape in shapes), "wrong": wrong}), flush=True)
    hvd.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
