#!/usr/bin/python3
"""Measures the backward graphs of networks, and how long rueda.torch walks one before the first step: Table I of Pumma et al. (CCGrid
2020). Nothing is computed: the networks have shapes and no values, on PyTorch's "meta" device.

bench/graphs.py [--rounds N]

It needs PyTorch and torchvision (deploy/packages.sh bench). The paper's nodes are those of TensorFlow's graph, forward and backward,
with the operations of the optimizer; PyTorch's are those of the backward pass alone."""

import argparse
import os
import statistics
import sys
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(SOURCE, "client", "python"))

import torch  # noqa: E402
import torchvision  # noqa: E402
from rueda.torch._graph import walk  # noqa: E402

# The network's name, and nodes, edges and milliseconds in the paper's Table I. GoogLeNet and Inception-v3 have their auxiliary
# classifiers here.
PAPER = {"resnet18": (1714, 2565, 32), "resnet34": (2866, 4325, 86), "resnet50": (3988, 6042, 159),
         "resnet101": (7558, 11499, 594), "resnet152": (11128, 16956, 1274), "alexnet": (655, 893, 6),
         "googlenet-aux": (3499, 4970, 182), "inception_v3": (6146, 9211, 382), "vgg16": (1091, 1479, 17)}


def loss_of(name):
    more = {"init_weights": False} if name in ("googlenet-aux", "inception_v3") else {}
    network = getattr(torchvision.models, name.replace("-aux", ""))(**more).to("meta")
    found = network(torch.empty(2, 3, 299, 299, device="meta"))
    return sum(one.sum() for one in (found if isinstance(found, tuple) else (found,)) if one is not None)


def measure(name, rounds):
    """Returns the walk of the network's graph, and the median of its milliseconds, each time of a new graph."""
    times = []
    for _ in range(rounds):
        loss = loss_of(name)
        begin = time.perf_counter()
        found = walk([loss])
        times.append(1e3 * (time.perf_counter() - begin))
    return found, statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    if rounds < 1:
        parser.error("--rounds must be at least 1")
    print("| network | gradients | nodes | edges | walk, ms | the paper's nodes | edges | ms |")
    print("|---|---|---|---|---|---|---|---|")
    for name, (nodes, edges, ms) in PAPER.items():
        found, here = measure(name, rounds)
        print(f"| {name} | {len(found.leaves)} | {found.nodes:,} | {found.edges:,} | {here:.1f} | {nodes:,} | {edges:,} | {ms:,} |")


if __name__ == "__main__":
    main()
