"""Trains with accelerate, which makes the group: RUEDA_TORCH_REPLACES decides whose it is."""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import gather_object, set_seed
from frameworks_tools import BATCH, STEPS, Rows, make_net, tell


def main():
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    set_seed(3)
    net = make_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    loader = torch.utils.data.DataLoader(Rows(BATCH * STEPS * accelerator.num_processes), BATCH)
    net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
    losses = []
    for rows, classes in loader:
        with accelerator.accumulate(net):
            loss = F.cross_entropy(net(rows), classes)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach()).mean().item())
    with accelerator.main_process_first():
        print("rank", accelerator.process_index, "is here")
    names = gather_object([f"rank {accelerator.process_index}"])
    assert names == [f"rank {rank}" for rank in range(accelerator.num_processes)], names
    right = accelerator.gather_for_metrics(net(loader.dataset.rows[:7]).argmax(1))
    assert len(right) == 7 * accelerator.num_processes
    tell("backend", [dist.get_backend(), type(dist.group.WORLD).__name__, accelerator.state.backend])
    if accelerator.is_main_process:
        tell("losses", losses)
    with tempfile.TemporaryDirectory() as own:
        folder = gather_object([own])[0]
        accelerator.save_state(folder)
        accelerator.wait_for_everyone()  # rank 0 writes what all read
        accelerator.load_state(folder)
        accelerator.wait_for_everyone()
    accelerator.end_training()
    return os.EX_OK


if __name__ == "__main__":
    sys.exit(main())
