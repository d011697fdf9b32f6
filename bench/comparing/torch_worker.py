#!/usr/bin/python3
"""Runs one rank of PyTorch on Gloo, for bench/compare.py: an all-reduce (float32, sum, in place) at each size, or a step of
DistributedDataParallel over tensors of given shapes.

RANK and WORLD_SIZE say which rank. Rank 0 prints one JSON object a size, with the same keys as rueda-bench."""

import argparse
import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from measuring import measure


class Peers:
    """All ranks, as measure() needs them."""

    def __init__(self, ranks):
        self.ranks = ranks

    def barrier(self):
        dist.barrier()

    def largest(self, values):
        return self._over_ranks(values, dist.ReduceOp.MAX)

    def sums(self, values):
        return self._over_ranks(values, dist.ReduceOp.SUM)

    @staticmethod
    def _over_ranks(values, op):
        found = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(found, op)
        return found.tolist()


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

    peers = Peers(ranks)

    def report(work, size):
        result = measure(work, peers, size, options.iters, options.warmup)
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
