#!/usr/bin/python3
"""Trains two models at once, each on half of the ranks, and lets all ranks vote.

    ruedarun -np 4 python3 torch_process_sets.py

Each half is a process set: its gradients are reduced among its own ranks, without waiting for the other
half. The votes are an allreduce over all.
"""

import sys

import torch
import torch.nn.functional as F
from torch import optim
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torch_digits import Net, load_data

import rueda.torch as hvd

EPOCHS = 6
BATCH = 32  # over the ranks of a half
REQUIRED_ACCURACY = 0.9


def main():
    hvd.init()
    if hvd.size() < 2:
        print("give it two ranks at least: ruedarun -np 2", file=sys.stderr)
        return 2
    torch.set_num_threads(1)
    # Every rank adds both sets, also the set that it is not in.
    halves = [hvd.add_process_set([rank for rank in range(hvd.size()) if rank % 2 == half]) for half in (0, 1)]
    mine = hvd.rank() % 2
    own = halves[mine]

    torch.manual_seed(hvd.rank())  # all ranks begin with other weights
    model = Net()
    training, testing = load_data()
    sampler = DistributedSampler(training, own.size(), own.rank(), seed=mine)
    loader = DataLoader(training, max(1, BATCH // own.size()), sampler=sampler)
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for name, parameter in model.named_parameters():
        hvd.broadcast_(parameter.data, root_rank=own.ranks[0], name=name, process_set=own)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), process_set=own)
    for epoch in range(EPOCHS):
        model.train()
        sampler.set_epoch(epoch)
        for data, target in loader:
            optimizer.zero_grad()
            F.nll_loss(model(data), target).backward()
            optimizer.step()

    model.eval()
    images, labels = next(iter(DataLoader(testing, len(testing))))
    with torch.no_grad():
        own_vote = model(images).exp()
    accuracy_alone = (own_vote.argmax(1) == labels).float().mean().item()
    accuracies = hvd.allgather(torch.tensor([accuracy_alone]), name="accuracies").tolist()
    together = (hvd.allreduce(own_vote, name="votes").argmax(1) == labels).float().mean().item()
    if hvd.rank() == 0:
        print(f"accuracy of the model of {halves[0].ranks}: {accuracies[0]:.4f}, of {halves[1].ranks}: "
              f"{accuracies[1]:.4f}, of both: {together:.4f}", flush=True)
    # Within a half all ranks have the same model; the halves have different ones.
    is_right = all(accuracy == accuracies[rank % 2] for rank, accuracy in enumerate(accuracies))
    hvd.shutdown()
    return 0 if is_right and together >= REQUIRED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
