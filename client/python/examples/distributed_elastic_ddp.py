#!/usr/bin/python3
"""DistributedDataParallel that survives deaths: the other processes go on, with what they have in memory.

    ruedarun -np 4 --min-np 2 distributed_elastic_ddp.py

With --die-at STEP the first process of slot 1 kills itself there.
"""

import argparse
import copy
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import rueda.distributed

COMMIT_EVERY = 10


class State:
    """What the ranks must have in common, as it was at the last commit, and now."""

    def __init__(self, module, optimizer):
        self.module, self.optimizer, self.step = module, optimizer, 0
        self.commit()

    def commit(self):
        self._kept = (self.step, copy.deepcopy(self.module.state_dict()), copy.deepcopy(self.optimizer.state_dict()))

    def restore(self):
        self.step = self._kept[0]
        self.module.load_state_dict(self._kept[1])
        self.optimizer.load_state_dict(self._kept[2])

    def sync(self):
        """Takes the state of the lowest rank with the newest commit."""
        newest = torch.tensor([self.step * dist.get_world_size() + dist.get_world_size() - 1 - dist.get_rank()])
        dist.all_reduce(newest, op=dist.ReduceOp.MAX)
        root = dist.get_world_size() - 1 - int(newest) % dist.get_world_size()
        told = [self._kept]
        dist.broadcast_object_list(told, src=root)
        self._kept = told[0]
        self.restore()


def train(state, steps, die_at):
    """Trains on with the ranks of this generation. Returns whether the training is over; if not, others want to take part."""
    state.sync()
    model = DistributedDataParallel(state.module)
    while state.step < steps:
        if state.step == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        torch.manual_seed(1000 * state.step + dist.get_rank())
        rows = torch.randn(16, 10)
        state.optimizer.zero_grad()
        (model(rows) - rows.sum(1, keepdim=True)).square().mean().backward()
        state.optimizer.step()
        state.step += 1
        if state.step % COMMIT_EVERY == 0:
            state.commit()
            if rueda.distributed.hosts_changed():
                return False
    return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--die-at", type=int, default=-1)
    options = parser.parse_args()
    mark = f"died-{os.environ['RUEDA_JOB_ID']}"
    is_victim = os.environ["RANK"] == "1" and not os.path.exists(mark)
    if is_victim and options.die_at >= 0:
        with open(mark, "w", encoding="ascii"):
            pass
    module = torch.nn.Linear(10, 1)
    state = State(module, torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9))
    is_over = False
    while not is_over:
        rueda.distributed.init_elastic_process_group()
        print(f"rank {dist.get_rank()} of {dist.get_world_size()}", flush=True)
        try:
            is_over = train(state, options.steps, options.die_at if is_victim else -1)
        except RuntimeError as error:
            if not rueda.distributed.has_lost_membership():
                raise
            print(f"goes back to the last commit: {error}", flush=True)
            state.restore()
    torch.manual_seed(0)
    rows = torch.randn(1000, 10)
    loss = (module(rows) - rows.sum(1, keepdim=True)).square().mean().item()
    print(f"loss {loss:.6f} after {state.step} steps", flush=True)
    dist.destroy_process_group()
    return 0 if loss < 0.01 else 1


if __name__ == "__main__":
    sys.exit(main())
