#!/usr/bin/python3
"""Lightning's Trainer.

    ruedarun -np 4 python3 distributed_lightning.py
"""

import os
import sys

import lightning
import torch
import torch.nn.functional as F
from distributed_digits import BATCH, EPOCHS, REQUIRED_ACCURACY
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader
from torch_digits import Net, load_data

import rueda.distributed  # noqa: F401  registers the backend


class Digits(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def training_step(self, batch, _):
        data, target = batch
        return F.nll_loss(self.net(data), target)

    def test_step(self, batch, _):
        data, target = batch
        self.log("accuracy", (self.net(data).argmax(1) == target).float().mean(), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def main():
    torch.set_num_threads(1)
    lightning.seed_everything(42)
    training, testing = load_data()
    size, nodes = int(os.environ["WORLD_SIZE"]), int(os.environ.get("RUEDA_NNODES", "1"))
    strategy = DDPStrategy(process_group_backend="rueda")
    trainer = lightning.Trainer(accelerator="cpu", devices=size // nodes, num_nodes=nodes, strategy=strategy,
                                max_epochs=EPOCHS, logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False)
    model = Digits()
    trainer.fit(model, DataLoader(training, BATCH // size, shuffle=True))
    (result,) = trainer.test(model, DataLoader(testing, 64), verbose=False)
    if trainer.is_global_zero:
        print(f"{torch.distributed.get_backend()}: accuracy {result['accuracy']:.4f}", flush=True)
    return 0 if result["accuracy"] >= REQUIRED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
