"""Tests worlds that become smaller: the last rank leaves, and the others go on by themselves."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

import rueda


def case_a_smaller_world():
    while True:
        rank, size = dist.get_rank(), dist.get_world_size()
        total = torch.ones(2)
        dist.all_reduce(total)
        assert total[0] == size
        dist.barrier()
        if size == 1:
            return
        dist.destroy_process_group()
        if rank == size - 1:
            rueda.shutdown()
            print("ok", flush=True)
            os._exit(0)
        dist.init_process_group("rueda", rank=rank, world_size=size - 1, timeout=timedelta(seconds=60))
