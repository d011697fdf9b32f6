#!/usr/bin/python3
"""Accumulates gradients over several batches before they are reduced, for batches that do not fit into
memory: the network carries one all-reduce a step, not one a batch.

    ruedarun -np 4 python3 torch_accumulation.py
"""

import sys

import torch
import torch.nn.functional as F
from torch import optim
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torch_digits import Net, load_data, test

import rueda
import rueda.torch as hvd

EPOCHS = 6
BATCH = 32  # of a step, over all ranks
PASSES = 4  # backward passes of a step
REQUIRED_ACCURACY = 0.9


def main():
    hvd.init()
    torch.manual_seed(42)
    torch.set_num_threads(1)
    training, testing = load_data()
    sampler = DistributedSampler(training, hvd.size(), hvd.rank())
    # Batches that would leave a step half done are dropped.
    loader = DataLoader(training, max(1, BATCH // (hvd.size() * PASSES)), sampler=sampler)
    test_sampler = DistributedSampler(testing, hvd.size(), hvd.rank(), shuffle=False)
    test_loader = DataLoader(testing, 64, sampler=test_sampler)

    model = Net()
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(),
                                         backward_passes_per_step=PASSES)
    steps_an_epoch = len(loader) // PASSES
    accuracy = 0.0
    for epoch in range(1, EPOCHS + 1):
        model.train()
        sampler.set_epoch(epoch)
        batches = iter(loader)
        submissions = rueda.stats().submissions
        for _ in range(steps_an_epoch):
            optimizer.zero_grad()
            for _ in range(PASSES):
                data, target = next(batches)
                # The loss is divided, so that the sum over the passes is the mean over the step's rows.
                (F.nll_loss(model(data), target) / PASSES).backward()
            optimizer.step()
        submissions = rueda.stats().submissions - submissions
        loss, accuracy = test(model, test_sampler, test_loader)
        if hvd.rank() == 0:
            each = submissions / steps_an_epoch
            print(f"epoch {epoch}: test loss {loss:.4f}, accuracy {accuracy:.4f}, "
                  f"{each:.0f} tensors reduced in a step of {PASSES} passes", flush=True)
    hvd.shutdown()
    return 0 if accuracy >= REQUIRED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
