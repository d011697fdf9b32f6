"""Trains with Lightning's Trainer, which is told nothing but the backend's name.

    frameworks_lightning.py rueda|gloo
"""

import os
import sys

import lightning
import torch
import torch.distributed as dist
import torch.nn.functional as F
from frameworks_tools import BATCH, STEPS, Rows, make_net, tell
from lightning.pytorch.strategies import DDPStrategy


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = make_net()
        self.losses = []

    def training_step(self, batch, _):
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss, sync_dist=True)
        return loss

    def on_train_batch_end(self, *_):
        self.losses.append(float(self.trainer.callback_metrics["loss"]))

    def validation_step(self, batch, _):
        self.log("validation", F.cross_entropy(self.net(batch[0]), batch[1]), sync_dist=True)
        self.log("inference", float(torch.is_inference_mode_enabled()), sync_dist=True, reduce_fx="max")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def main():
    torch.set_num_threads(1)
    size, nodes = int(os.environ["WORLD_SIZE"]), int(os.environ["RUEDA_NNODES"])
    trainer = lightning.Trainer(
        accelerator="cpu", devices=size // nodes, num_nodes=nodes, strategy=DDPStrategy(process_group_backend=sys.argv[1]),
        max_steps=STEPS, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    module = Module()
    rows = Rows(BATCH * STEPS * size)
    trainer.fit(module, torch.utils.data.DataLoader(rows, BATCH))
    (result,) = trainer.validate(module, torch.utils.data.DataLoader(rows, 64), verbose=False)
    trainer.strategy.barrier()
    everyone = trainer.strategy.all_gather(torch.tensor([float(trainer.global_rank)]))
    assert everyone.flatten().tolist() == [float(rank) for rank in range(size)], everyone
    tell("backend", [dist.get_backend(), type(dist.group.WORLD).__name__, type(trainer.strategy.cluster_environment).__name__])
    if trainer.is_global_zero:
        tell("losses", [*module.losses, result["validation"]])
        tell("inference", result["inference"])


if __name__ == "__main__":
    main()
