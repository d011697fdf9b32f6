#!/usr/bin/python3
"""FSDP: each rank holds a part of the weights, of the gradients and of the optimizer's state. PyTorch 2.

    ruedarun -np 4 python3 distributed_fsdp.py
"""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from distributed_digits import BATCH, EPOCHS, REQUIRED_ACCURACY, accuracy_of
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torch_digits import Net, load_data

import rueda.distributed  # noqa: F401  registers the backend


def main():
    dist.init_process_group("rueda")
    torch.manual_seed(42)
    torch.set_num_threads(1)
    training, testing = load_data()
    sampler = DistributedSampler(training)
    loader = DataLoader(training, BATCH // dist.get_world_size(), sampler=sampler)
    model = Net()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.children():
        if any(True for _ in layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(EPOCHS):
        model.train()
        sampler.set_epoch(epoch)
        for data, target in loader:
            optimizer.zero_grad()
            F.nll_loss(model(data), target).backward()
            optimizer.step()
    held = sum(parameter.to_local().numel() for parameter in model.parameters())
    whole = sum(parameter.numel() for parameter in model.parameters())
    accuracy = accuracy_of(model, testing)
    if dist.get_rank() == 0:
        print(f"{held} of {whole} weights on rank 0, accuracy {accuracy:.4f}", flush=True)
    dist.destroy_process_group()
    return 0 if accuracy >= REQUIRED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
