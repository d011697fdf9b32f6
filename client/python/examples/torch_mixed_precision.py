#!/usr/bin/python3
"""Trains in mixed precision: layers compute in bfloat16, weights and gradients are float32, gradients
travel as bfloat16 between nodes. Gradients are clipped once they are reduced, so on all ranks alike.

    ruedarun -np 4 python3 torch_mixed_precision.py
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torch_digits import Net, load_data, test

import rueda.torch as hvd

EPOCHS = 6
BATCH = 32  # over all ranks
REQUIRED_ACCURACY = 0.9


def main():
    hvd.init()
    torch.manual_seed(42)
    torch.set_num_threads(1)
    training, testing = load_data()
    sampler = DistributedSampler(training, hvd.size(), hvd.rank())
    loader = DataLoader(training, max(1, BATCH // hvd.size()), sampler=sampler)
    test_sampler = DistributedSampler(testing, hvd.size(), hvd.rank(), shuffle=False)
    test_loader = DataLoader(testing, 64, sampler=test_sampler)

    model = Net()
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(),
                                         compression=hvd.Compression.bf16)
    accuracy = 0.0
    for epoch in range(1, EPOCHS + 1):
        model.train()
        sampler.set_epoch(epoch)
        for data, target in loader:
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                output = model(data)
            F.nll_loss(output.float(), target).backward()
            optimizer.synchronize()  # the gradients are reduced now
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            with optimizer.skip_synchronize():
                optimizer.step()
        loss, accuracy = test(model, test_sampler, test_loader)
        if hvd.rank() == 0:
            print(f"epoch {epoch}: test loss {loss:.4f}, accuracy {accuracy:.4f}", flush=True)
    hvd.shutdown()
    return 0 if accuracy >= REQUIRED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
