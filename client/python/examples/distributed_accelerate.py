#!/usr/bin/python3
"""A training loop in the form of Hugging Face's, with accelerate.

    ruedarun -np 4 python3 distributed_accelerate.py
"""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from accelerate import Accelerator
from distributed_digits import BATCH, EPOCHS, REQUIRED_ACCURACY
from torch.utils.data import DataLoader
from torch_digits import Net, load_data

import rueda.distributed  # noqa: F401  registers the backend


def main():
    torch.set_num_threads(1)
    dist.init_process_group("rueda")  # accelerate takes the group that it finds
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(42)
    training, testing = load_data()
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader = DataLoader(training, BATCH // accelerator.num_processes, shuffle=True)
    test_loader = DataLoader(testing, 64)
    model, optimizer, loader, test_loader = accelerator.prepare(model, optimizer, loader, test_loader)
    for _ in range(EPOCHS):
        model.train()
        for data, target in loader:
            optimizer.zero_grad()
            accelerator.backward(F.nll_loss(model(data), target))
            optimizer.step()
    model.eval()
    right = count = 0
    with torch.no_grad():
        for data, target in test_loader:
            found, wanted = accelerator.gather_for_metrics((model(data).argmax(1), target))
            right, count = right + (found == wanted).sum().item(), count + len(wanted)
    accelerator.print(f"{dist.get_backend()}: accuracy {right / count:.4f} of {count}")
    accelerator.end_training()
    return 0 if right / count >= REQUIRED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
