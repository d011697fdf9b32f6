"""Does what torch_device_death.py does, with torch.distributed."""

import os
import signal

import torch
import torch.distributed as dist
from torch_on_gpu import CUDA


def case_next_reduction():
    tensor = CUDA.put(torch.ones(1000))
    dist.all_reduce(tensor)
    CUDA.synchronize()
    if dist.get_rank() == dist.get_world_size() - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(tensor)  # this thread does not wait
    CUDA.synchronize()
    try:
        dist.all_reduce(tensor)
    except RuntimeError as error:
        print(f"told: {error}", flush=True)
        os._exit(1)
    raise AssertionError("nobody was told")
