"""Holds what the programs of frameworks_test.py share: a small model, its data, and how losses are told."""

import json

import torch

STEPS = 30
BATCH = 8  # rows of one rank in one step


class Rows(torch.utils.data.Dataset):
    """Rows of 16 numbers, each with a class of 4 that a matrix decides."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(11)
        self.rows = torch.randn(count, 16, generator=generator)
        self.classes = (self.rows @ torch.randn(16, 4, generator=generator)).argmax(1)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index], self.classes[index]


def make_net():
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 4))


def tell(what, value):
    print(f"{what}: {json.dumps(value)}", flush=True)
