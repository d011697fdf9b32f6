#!/usr/bin/python3
"""Trains on uneven data: the higher a rank, the more batches it has. A rank that has no more batches joins, and contributes zeros
to the gradients of the others until all are done.

    ruedarun -np 4 python3 torch_join.py"""

import sys

import torch
import torch.nn.functional as F
from torch import optim
from torch.utils.data import DataLoader, Subset
from torch_digits import Net, load_data

import rueda.torch as hvd

EPOCHS = 8
BATCH = 16  # of a rank
REQUIRED_ACCURACY = 0.9


def own_share(dataset, rank, size):
    """Returns this rank's part of the data: 1 part for rank 0, 2 for rank 1, ..."""
    parts = size * (size + 1) // 2
    cut = [len(dataset) * (r * (r + 1) // 2) // parts for r in (rank, rank + 1)]
    return Subset(dataset, range(*cut))


def main():
    hvd.init()
    torch.manual_seed(42)
    torch.set_num_threads(1)
    training, testing = load_data()
    share = own_share(training, hvd.rank(), hvd.size())
    loader = DataLoader(share, BATCH, shuffle=True)

    model = Net()
    optimizer = optim.SGD(model.parameters(), lr=0.015 * hvd.size(), momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    last = -1
    for epoch in range(1, EPOCHS + 1):
        model.train()
        for data, target in loader:
            optimizer.zero_grad()
            F.nll_loss(model(data), target).backward()
            optimizer.step()
        last = hvd.join()
        # A rank that joined early has missed steps; the rank that joined last has made them all and has the right weights.
        hvd.broadcast_parameters(model.state_dict(), root_rank=last)
        hvd.broadcast_optimizer_state(optimizer, root_rank=last)

    model.eval()
    images, labels = next(iter(DataLoader(testing, len(testing))))
    with torch.no_grad():
        accuracy = (model(images).argmax(1) == labels).float().mean()
    accuracies = hvd.allgather(accuracy.reshape(1), name="accuracies")
    print(f"rank {hvd.rank()} had {len(loader)} batches an epoch; rank {last} joined last", flush=True)
    if hvd.rank() == 0:
        print(f"accuracy {accuracy:.4f}", flush=True)
    hvd.shutdown()
    return 0 if bool((accuracies == accuracies[0]).all()) and accuracy >= REQUIRED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
