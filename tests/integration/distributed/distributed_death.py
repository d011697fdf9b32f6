"""Runs a rank that dies in the middle of a step."""

import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import rueda.distributed


def run_until_a_death(step):
    for number in range(100):
        if number == 20 and dist.get_rank() == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            step()
        except RuntimeError as error:
            print(f"told: {str(error).splitlines()[0]}", flush=True)
            sys.exit(1)


def train(hook):
    model = DistributedDataParallel(torch.nn.Linear(10, 1))
    if hook is not None:
        model.register_comm_hook(None, hook)
    run_until_a_death(lambda: model(torch.ones(4, 10)).sum().backward())


def case_all_reduce():
    run_until_a_death(lambda: dist.all_reduce(torch.ones(10)))


def case_ddp():
    train(None)


def case_arena_hook():
    train(rueda.distributed.arena_hook)
