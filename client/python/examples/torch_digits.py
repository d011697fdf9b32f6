#!/usr/bin/python3
"""Trains a convolutional network on handwritten digits, in the form in which Horovod scripts are
written: only the import is another one.

    ruedarun -np 4 python3 torch_digits.py
"""

import argparse
import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the ranks share the cores

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402
from torch import nn, optim  # noqa: E402
from torch.utils.data import DataLoader, Subset, TensorDataset  # noqa: E402
from torch.utils.data.distributed import DistributedSampler  # noqa: E402

import rueda.torch as hvd  # noqa: E402


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, kernel_size=3)
        self.conv2 = nn.Conv2d(8, 16, kernel_size=3)
        self.fc1 = nn.Linear(64, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        x = F.relu(self.fc1(x.flatten(1)))
        return F.log_softmax(self.fc2(x), dim=1)


def load_data():
    """Returns (training set, test set) of images of 8 by 8 pixels."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    dataset = TensorDataset(images, torch.tensor(digits.target))
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(1)).tolist()
    cut = len(order) * 8 // 10
    return Subset(dataset, order[:cut]), Subset(dataset, order[cut:])


def metric_average(value, name):
    return hvd.allreduce(torch.tensor(value), name=name).item()


def train(model, sampler, loader, optimizer, epoch):
    model.train()
    sampler.set_epoch(epoch)
    for data, target in loader:
        optimizer.zero_grad()
        F.nll_loss(model(data), target).backward()
        optimizer.step()


def test(model, sampler, loader):
    """Returns loss and accuracy, averaged over the ranks."""
    model.eval()
    loss, correct = 0.0, 0.0
    with torch.no_grad():
        for data, target in loader:
            output = model(data)
            loss += F.nll_loss(output, target, reduction="sum").item()
            correct += output.argmax(1).eq(target).float().sum().item()
    return (metric_average(loss / len(sampler), "avg_loss"), metric_average(correct / len(sampler), "avg_accuracy"))


def main():
    parser = argparse.ArgumentParser(description="Trains on handwritten digits, data-parallel, as Horovod scripts do.")
    parser.add_argument("--batch-size", type=int, default=16, help="of each rank")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--lr", type=float, default=0.02, help="of one rank; it is multiplied by their number")
    parser.add_argument("--workers", type=int, default=0, help="processes that load data, of each rank")
    parser.add_argument("--fp16-allreduce", action="store_true", help="gradients travel as float16")
    parser.add_argument("--require", type=float, default=0.0, help="fail below this accuracy")
    arguments = parser.parse_args()

    hvd.init()
    torch.manual_seed(42)
    torch.set_num_threads(1)

    training, testing = load_data()
    train_sampler = DistributedSampler(training, num_replicas=hvd.size(), rank=hvd.rank())
    test_sampler = DistributedSampler(testing, num_replicas=hvd.size(), rank=hvd.rank(), shuffle=False)
    train_loader = DataLoader(training, arguments.batch_size, sampler=train_sampler, num_workers=arguments.workers)
    test_loader = DataLoader(testing, 64, sampler=test_sampler)

    model = Net()
    optimizer = optim.SGD(model.parameters(), lr=arguments.lr * hvd.size(), momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    compression = hvd.Compression.fp16 if arguments.fp16_allreduce else hvd.Compression.none
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), compression=compression)

    accuracy = 0.0
    for epoch in range(1, arguments.epochs + 1):
        train(model, train_sampler, train_loader, optimizer, epoch)
        loss, accuracy = test(model, test_sampler, test_loader)
        if hvd.rank() == 0:
            print(f"epoch {epoch:2d}: test loss {loss:.4f}, accuracy {accuracy:.4f}", flush=True)
    hvd.shutdown()
    return 0 if accuracy >= arguments.require else 1


if __name__ == "__main__":
    sys.exit(main())
