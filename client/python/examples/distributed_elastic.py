#!/usr/bin/python3
"""Training that survives a death: torchrun starts all ranks again, and they go on from the last snapshot.

    torchrun --nproc_per_node 2 --max_restarts 3 distributed_elastic.py snapshot.pt      # beside a daemon

With --die-once FILE a rank kills itself in the middle, if FILE is not there yet.
"""

import argparse
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import rueda.distributed  # noqa: F401  registers the backend

STEPS = 100


def load(path, model, optimizer):
    """Returns the step to go on with."""
    if not os.path.exists(path):
        return 0
    snapshot = torch.load(path)
    model.load_state_dict(snapshot["model"])
    optimizer.load_state_dict(snapshot["optimizer"])
    return snapshot["step"]


def save(path, step, model, optimizer):
    """Saves the snapshot completely, or not at all."""
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path + ".new")
    os.replace(path + ".new", path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("snapshot")
    parser.add_argument("--die-once", metavar="FILE")
    options = parser.parse_args()
    dist.init_process_group("rueda")
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Linear(10, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    first = load(options.snapshot, model, optimizer)
    if dist.get_rank() == 0:
        print(f"begins with step {first}", flush=True)
    for step in range(first, STEPS):
        torch.manual_seed(1000 * step + dist.get_rank())
        rows = torch.randn(16, 10)
        optimizer.zero_grad()
        (model(rows) - rows.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
        if (step + 1) % 10 == 0 and dist.get_rank() == 0:
            save(options.snapshot, step + 1, model, optimizer)
        if step == 35 and dist.get_rank() == 1 and options.die_once and not os.path.exists(options.die_once):
            with open(options.die_once, "w", encoding="ascii"):
                pass
            os.kill(os.getpid(), signal.SIGKILL)
    torch.manual_seed(0)
    rows = torch.randn(1000, 10)
    loss = (model(rows) - rows.sum(1, keepdim=True)).square().mean().item()
    if dist.get_rank() == 0:
        print(f"loss {loss:.6f} after {STEPS} steps", flush=True)
    dist.destroy_process_group()
    return 0 if loss < 0.01 else 1


if __name__ == "__main__":
    sys.exit(main())
