"""Trains with DeepSpeed's ZeRO on CPUs, with PyTorch's Adam and none of DeepSpeed's compiled operators.

    frameworks_deepspeed.py rueda|gloo STAGE FOLDER
"""

import os
import sys

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed  # noqa: E402
import deepspeed.ops  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from frameworks_tools import BATCH, STEPS, Rows, make_net, tell  # noqa: E402


def main():
    torch.set_num_threads(1)
    backend, stage, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    deepspeed.ops.__compatible_ops__ = {}  # or it would compile one for inference, for a minute, where there is a compiler
    deepspeed.init_distributed(backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    net = make_net()
    engine, optimizer, _, _ = deepspeed.initialize(
        model=net, optimizer=torch.optim.Adam(net.parameters(), lr=0.01),
        config={"train_micro_batch_size_per_gpu": BATCH, "gradient_accumulation_steps": 1, "zero_allow_untested_optimizer": True,
                "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0}, "steps_per_print": 10_000})
    rows = Rows(BATCH * STEPS * size)
    losses = []
    for step in range(STEPS):
        first = (step * size + rank) * BATCH
        loss = F.cross_entropy(engine(rows.rows[first:first + BATCH]), rows.classes[first:first + BATCH])
        engine.backward(loss)
        engine.step()
        dist.all_reduce(mean := loss.detach().clone())
        losses.append(mean.item() / size)
    engine.save_checkpoint(folder)
    engine.load_checkpoint(folder)
    with torch.no_grad():
        loss = F.cross_entropy(engine(rows.rows), rows.classes)
    tell("backend", [dist.get_backend(), type(dist.group.WORLD).__name__])
    if rank == 0:
        tell("losses", [*losses, loss.item()])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
