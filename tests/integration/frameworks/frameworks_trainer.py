"""Trains a small GPT-2 on random tokens with the Trainer of transformers, and goes on from a checkpoint.

    frameworks_trainer.py FOLDER gloo|named|made    the group: as the Trainer makes it, or made here, of "rueda"
"""

import os
import sys

import torch
import torch.distributed as dist
from frameworks_tools import STEPS, tell
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

HALF = STEPS // 2


class Tokens(torch.utils.data.Dataset):
    def __init__(self):
        self.tokens = torch.randint(0, 97, (256, 16), generator=torch.Generator().manual_seed(3))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def train(folder, checkpoint=None):
    set_seed(7)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=97, n_positions=16, n_embd=64, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0))
    arguments = TrainingArguments(
        output_dir=folder, max_steps=STEPS, per_device_train_batch_size=4, learning_rate=1e-3, logging_steps=1, save_steps=HALF,
        use_cpu=True, report_to=[], disable_tqdm=True, seed=7, ddp_find_unused_parameters=False)
    trainer = Trainer(model=model, args=arguments, train_dataset=Tokens(), eval_dataset=Tokens())
    trainer.train(resume_from_checkpoint=checkpoint)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    evaluated = trainer.evaluate()["eval_loss"]
    return losses, evaluated, sum(parameter.double().sum().item() for parameter in model.parameters())


def main():
    torch.set_num_threads(1)
    folder, made = sys.argv[1:]
    if made == "made":
        dist.init_process_group("rueda")
    losses, evaluated, weights = train(folder)
    tell("backend", [dist.get_backend(), type(dist.group.WORLD).__name__])
    if dist.get_rank() == 0:
        tell("losses", [*losses, evaluated])
    again = train(folder, os.path.join(folder, f"checkpoint-{HALF}"))
    if dist.get_rank() == 0:
        tell("resumed", [*again[0][-HALF:], again[1]])
    tell("weights", [weights, again[2]])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
