#!/usr/bin/python3
"""Handwritten digits with DistributedDataParallel.

    ruedarun -np 4 python3 distributed_digits.py
    torchrun --nproc_per_node 4 distributed_digits.py       # beside a daemon
"""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torch_digits import Net, load_data

import rueda.distributed

EPOCHS = 12
BATCH = 64  # over all ranks
REQUIRED_ACCURACY = 0.9


def accuracy_of(model, testing):
    """Returns the accuracy over all ranks."""
    sampler = DistributedSampler(testing, shuffle=False)
    model.eval()
    right = torch.zeros(2)
    with torch.no_grad():
        for data, target in DataLoader(testing, 64, sampler=sampler):
            right += torch.tensor([(model(data).argmax(1) == target).sum(), len(target)])
    dist.all_reduce(right)
    return (right[0] / right[1]).item()


def main():
    dist.init_process_group("rueda")
    torch.manual_seed(42)
    torch.set_num_threads(1)
    training, testing = load_data()
    sampler = DistributedSampler(training)
    loader = DataLoader(training, BATCH // dist.get_world_size(), sampler=sampler)
    model = DistributedDataParallel(Net(), gradient_as_bucket_view=True)
    model.register_comm_hook(None, rueda.distributed.arena_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    accuracy = 0.0
    for epoch in range(1, EPOCHS + 1):
        model.train()
        sampler.set_epoch(epoch)
        for data, target in loader:
            optimizer.zero_grad()
            F.nll_loss(model(data), target).backward()
            optimizer.step()
        accuracy = accuracy_of(model, testing)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: accuracy {accuracy:.4f}", flush=True)
    dist.destroy_process_group()
    return 0 if accuracy >= REQUIRED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
