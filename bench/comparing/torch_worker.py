#!/usr/bin/python3
"""Runs one rank of PyTorch on Gloo, for bench/compare.py: an all-reduce (float32, sum, in place) at each size, or a step of
DistributedDataParallel over tensors of given shapes.

RANK and WORLD_SIZE say which rank. Rank 0 prints one JSON object a size, with the same keys as rueda-bench."""

import argparse
import json
import os
import resource
import time
from pathlib import Path

import torch
import torch.distributed as dist


def own_cpu_s():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def percentile(values, percent):
    """Returns the nearest-rank percentile, as rueda-bench does."""
    ordered = sorted(values)
    place = -(-percent * len(ordered) // 100)
    return ordered[max(int(place), 1) - 1]


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def default_iterations(size):
    """Returns the number that bench/base/sizes.cc chooses."""
    if size <= 64 << 10:
        return 200
    return 50 if size <= 4 << 20 else 20


class AllReduce:
    """An all-reduce to which every rank contributes 2^rank, so that a sum tells which ranks were in it."""

    def __init__(self, size, rank, ranks):
        self.buffer = torch.empty(size // 4, dtype=torch.float32)
        self.mine, self.sum = 2.0**rank, 2.0**ranks - 1

    def prepare(self):
        # The loop reduces its own results, and zeros neither overflow nor become subnormal.
        self.buffer.zero_()

    def operate(self):
        dist.all_reduce(self.buffer)

    def checked(self):
        """Returns the number of wrong elements."""
        self.buffer.fill_(self.mine)
        self.operate()
        return int((self.buffer != self.sum).sum())


class GivenGradients(torch.autograd.Function):
    """A loss whose backward pass computes nothing, because the gradients are there already."""

    @staticmethod
    def forward(ctx, gradients, *parameters):
        ctx.gradients = gradients
        return torch.zeros(())

    @staticmethod
    def backward(ctx, _):
        return (None, *ctx.gradients)


class Parameters(torch.nn.Module):
    def __init__(self, shapes):
        super().__init__()
        self.all = torch.nn.ParameterList(torch.nn.Parameter(torch.zeros(shape)) for shape in shapes)

    def forward(self, gradients):
        return GivenGradients.apply(gradients, *self.all)


class DdpStep:
    """A backward pass under DDP, with its own buckets; it averages 2^rank."""

    def __init__(self, shapes, rank, ranks):
        self.gradients = [torch.full(shape, 2.0**rank) for shape in shapes]
        self.average = (2.0**ranks - 1) / ranks
        # The view saves DDP a copy, so this is DDP at its best.
        self.model = torch.nn.parallel.DistributedDataParallel(Parameters(shapes), gradient_as_bucket_view=True)

    def prepare(self):
        pass

    def operate(self):
        for parameter in self.model.parameters():
            parameter.grad = None
        self.model(self.gradients).backward()

    def checked(self):
        self.operate()
        return sum(int((~torch.isclose(parameter.grad, torch.tensor(self.average))).sum())
                   for parameter in self.model.parameters())


def measure(work, size, ranks, iters, warmup):
    iters = iters or default_iterations(size)
    wrong = work.checked()
    for _ in range(warmup):
        work.operate()
    work.prepare()
    dist.barrier()
    times = []
    cpu = own_cpu_s()
    start = time.monotonic()
    for _ in range(iters):
        work.operate()
        end = time.monotonic()
        times.append(end - start)
        start = end
    cpu = own_cpu_s() - cpu
    wrong += work.checked()

    slowest = torch.tensor(times, dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    sums = torch.tensor([cpu, float(wrong)], dtype=torch.float64)
    dist.all_reduce(sums)
    slowest_us = [seconds * 1e6 for seconds in slowest.tolist()]
    time_us = median(slowest_us)
    return {
        "collective": "allreduce",
        "bytes": size,
        "dtype": "float32",
        "nranks": ranks,
        "time_us": time_us,
        "time_us_p99": percentile(slowest_us, 99),
        "algbw_GBps": size / time_us / 1e3,
        "busbw_GBps": size / time_us / 1e3 * 2 * (ranks - 1) / ranks,
        "cpu_s_per_GB": sums[0].item() / iters / (size / 1e9) if size else None,
        "wrong": int(sums[1].item()),
        "iters": iters,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True, help="file in which the ranks find each other")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--sizes", help="bytes, separated by commas")
    what.add_argument("--shapes", help="JSON file with the shapes of a model's tensors")
    parser.add_argument("--iters", type=int, required=True, help="0: by size")
    parser.add_argument("--warmup", type=int, required=True)
    options = parser.parse_args()
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + options.store, rank=rank, world_size=ranks)

    def report(work, size):
        result = measure(work, size, ranks, options.iters, options.warmup)
        if rank == 0:
            print(json.dumps(result), flush=True)

    if options.shapes:
        shapes = json.loads(Path(options.shapes).read_text())
        report(DdpStep(shapes, rank, ranks), sum(4 * torch.Size(shape).numel() for shape in shapes))
    else:
        for size in map(int, options.sizes.split(",")):
            report(AllReduce(size, rank, ranks), size)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
