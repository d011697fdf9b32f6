#!/usr/bin/python3
"""DistributedDataParallel in mixed precision: layers compute in bfloat16, weights and gradients are float32, and
gradients travel as bfloat16 between nodes.

    ruedarun -np 4 python3 distributed_mixed_precision.py
"""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from distributed_digits import BATCH, EPOCHS, REQUIRED_ACCURACY, accuracy_of
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torch_digits import Net, load_data

import rueda.distributed


def main():
    dist.init_process_group("rueda")
    torch.manual_seed(42)
    torch.set_num_threads(1)
    training, testing = load_data()
    sampler = DistributedSampler(training)
    loader = DataLoader(training, BATCH // dist.get_world_size(), sampler=sampler)
    model = DistributedDataParallel(Net(), gradient_as_bucket_view=True)
    model.register_comm_hook(None, rueda.distributed.bf16_wire_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(EPOCHS):
        model.train()
        sampler.set_epoch(epoch)
        for data, target in loader:
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                output = model(data)
            F.nll_loss(output.float(), target).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # they are reduced by now
            optimizer.step()
    accuracy = accuracy_of(model, testing)
    if dist.get_rank() == 0:
        print(f"accuracy {accuracy:.4f}", flush=True)
    dist.destroy_process_group()
    return 0 if accuracy >= REQUIRED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
