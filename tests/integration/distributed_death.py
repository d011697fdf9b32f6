"""A rank dies in the middle of a step."""

import os
import signal
import sys

import torch
import torch.distributed as dist


def case_death():
    for step in range(100):
        if step == 20 and dist.get_rank() == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            dist.all_reduce(torch.ones(10))
        except RuntimeError as error:
            print(f"told: {error}", flush=True)
            sys.exit(1)
