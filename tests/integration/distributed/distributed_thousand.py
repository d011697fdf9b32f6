"""Makes a thousand steps of DDP, in which neither memory nor descriptors grow."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import rueda.distributed


def resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def case_thousand_steps():
    for hook in (None, rueda.distributed.arena_hook):
        model = DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(6)]),
                                        bucket_cap_mb=0.02)
        if hook is not None:
            model.register_comm_hook(None, hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(1000):
            if step == 200:
                before = resident_bytes(), descriptors()
            optimizer.zero_grad()
            model(torch.ones(4, 64)).square().mean().backward()
            optimizer.step()
        after = resident_bytes(), descriptors()
        assert after[1] == before[1], (before, after)
        assert after[0] < before[0] + (4 << 20), (before, after)
        dist.barrier()
