"""Runs a rank of bench/modules.py, which trains a perceptron on synthetic data and measures how long a step takes. Rank 0 prints
one line of JSON: the median of the slowest rank's step times, and the loss after the last step."""

import argparse
import json
import os
import statistics
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the ranks share the cores

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import rueda.torch as hvd  # noqa: E402

BATCH = 32


def make_model(layers, width):
    torch.manual_seed(1)
    parts = []
    for _ in range(layers):
        parts += [torch.nn.Linear(width, width), torch.nn.Tanh()]
    return torch.nn.Sequential(*parts, torch.nn.Linear(width, 1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, required=True)
    parser.add_argument("--width", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--warmup", type=int, required=True)
    arguments = parser.parse_args()

    hvd.init()
    torch.set_num_threads(1)
    model = make_model(arguments.layers, arguments.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    torch.manual_seed(2 + hvd.rank())
    rows = torch.randn(BATCH, arguments.width)
    wanted = rows[:, :1]

    seconds = []
    loss = torch.zeros(())
    for step in range(arguments.warmup + arguments.steps):
        hvd.barrier()  # every step begins together
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = F.mse_loss(model(rows), wanted)
        loss.backward()
        optimizer.step()
        if step >= arguments.warmup:
            seconds.append(time.perf_counter() - begin)
    slowest = hvd.allreduce(torch.tensor(seconds, dtype=torch.float64), op=hvd.Max, name="seconds")
    loss = hvd.allreduce(loss.detach().double(), name="loss")
    if hvd.rank() == 0:
        print(json.dumps({"seconds": statistics.median(slowest.tolist()), "loss": loss.item()}), flush=True)
    hvd.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
