#!/usr/bin/python3
"""Trains a residual network on synthetic images and says how many a second it takes, as Horovod's
pytorch_synthetic_benchmark does.

    ruedarun -np 4 python3 torch_resnet.py --model resnet50
"""

import argparse
import os
import sys
import timeit

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the ranks share the cores

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn, optim  # noqa: E402

import rueda.torch as hvd  # noqa: E402

CLASSES = 1000
# How many blocks each stage has, and whether a block is a bottleneck of three convolutions.
MODELS = {"resnet18": ((2, 2, 2, 2), False), "resnet50": ((3, 4, 6, 3), True)}


def convolution(inputs, outputs, kernel, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False),
                         nn.BatchNorm2d(outputs))


class Block(nn.Module):
    def __init__(self, inputs, width, stride, is_bottleneck):
        super().__init__()
        outputs = width * (4 if is_bottleneck else 1)
        if is_bottleneck:
            self.layers = nn.ModuleList([convolution(inputs, width, 1), convolution(width, width, 3, stride),
                                         convolution(width, outputs, 1)])
        else:
            self.layers = nn.ModuleList([convolution(inputs, width, 3, stride), convolution(width, outputs, 3)])
        is_same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if is_same else convolution(inputs, outputs, 1, stride)
        self.outputs = outputs

    def forward(self, x):
        y = x
        for layer in self.layers[:-1]:
            y = F.relu(layer(y))
        return F.relu(self.layers[-1](y) + self.shortcut(x))


def make_model(name):
    counts, is_bottleneck = MODELS[name]
    layers = [convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)]
    channels = 64
    for stage, count in enumerate(counts):
        for i in range(count):
            block = Block(channels, 64 << stage, 2 if stage > 0 and i == 0 else 1, is_bottleneck)
            channels = block.outputs
            layers.append(block)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


def main():
    parser = argparse.ArgumentParser(description="Trains a residual network on synthetic images, data-parallel.")
    parser.add_argument("--model", choices=sorted(MODELS), default="resnet50")
    parser.add_argument("--batch-size", type=int, default=8, help="of each rank")
    parser.add_argument("--image-size", type=int, default=224, help="pixels a side")
    parser.add_argument("--warmup-steps", type=int, default=4, help="that are not measured")
    parser.add_argument("--rounds", type=int, default=3, help="that are measured")
    parser.add_argument("--steps-per-round", type=int, default=4)
    parser.add_argument("--fp16-allreduce", action="store_true", help="gradients travel as float16")
    arguments = parser.parse_args()

    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(42)
    model = make_model(arguments.model)
    optimizer = optim.SGD(model.parameters(), lr=0.01 * hvd.size())
    compression = hvd.Compression.fp16 if arguments.fp16_allreduce else hvd.Compression.none
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), compression=compression)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    torch.manual_seed(hvd.rank())  # each rank has its own images
    images = torch.randn(arguments.batch_size, 3, arguments.image_size, arguments.image_size)
    labels = torch.randint(CLASSES, (arguments.batch_size,))

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()

    timeit.timeit(step, number=arguments.warmup_steps)
    rates = []
    for _ in range(arguments.rounds):
        seconds = timeit.timeit(step, number=arguments.steps_per_round)
        rates.append(arguments.batch_size * arguments.steps_per_round / seconds)
    mean = sum(rates) / len(rates)
    if hvd.rank() == 0:
        count = sum(parameter.numel() for parameter in model.parameters())
        print(f"{arguments.model}, {count:,} parameters, batches of {arguments.batch_size} images of "
              f"{arguments.image_size} by {arguments.image_size} on each of {hvd.size()} ranks")
        print(f"images a second: {mean:.1f} a rank, {mean * hvd.size():.1f} together", flush=True)

    # All ranks have stepped alike: after any number of steps their weights are the same.
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    least, greatest = hvd.allreduce(weights, op=hvd.Min), hvd.allreduce(weights, op=hvd.Max)
    hvd.shutdown()
    return 0 if torch.equal(least, greatest) else 1


if __name__ == "__main__":
    sys.exit(main())
