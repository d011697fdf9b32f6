"""Trains a small model by hvd.elastic, and says at each step who took part.

    elastic_rank.py STEPS [DEATH...]

A rank of slot s contributes 2^s to a sum in each step, so the sum itself says who was in it. It ends earlier if there is a file "stop". DEATH is SLOT:STEP:HOW: the first
process of the slot ends at the step, by an exception (raise), or by exit (exit), once. At the end a rank prints its weights.
"""

import os
import sys
import time

import numpy as np
import rueda
import rueda.torch as hvd
import torch

SLOT = int(os.environ["RANK"])  # of the first generation: a process in the place of another has the same
STOPPED = 2 ** 40


def deaths_of(arguments):
    """Returns {step: how} of this slot's first process."""
    if os.path.exists(f"born{SLOT}"):
        return {}
    with open(f"born{SLOT}", "w", encoding="utf-8"):
        pass
    split = [argument.split(":") for argument in arguments]
    return {int(step): how for slot, step, how in split if int(slot) == SLOT}


def main():
    steps, deaths = int(sys.argv[1]), deaths_of(sys.argv[2:])
    torch.manual_seed(SLOT + 1)
    model = torch.nn.Linear(8, 1)
    print("pid", os.getpid(), flush=True)

    hvd.init()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),
                                         named_parameters=model.named_parameters())
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0)
    state.register_reset_callbacks([lambda: print(f"reset from {state.previous_size} to {state.current_size}", flush=True)])

    @hvd.elastic.run
    def train(state):
        while state.step < steps:
            if state.step in deaths:
                if deaths[state.step] == "raise":
                    raise ValueError("made by the test")
                os._exit(3)
            state.optimizer.zero_grad()
            rows = torch.full((4, 8), 0.1 * (1 + state.step % 7))
            ((state.model(rows) - 1) ** 2).mean().backward()
            state.optimizer.step()
            wish = STOPPED if os.path.exists("stop") else 0
            members = int(rueda.allreduce(np.array([2.0 ** SLOT + wish]), name="members", op=rueda.Sum)[0])
            is_over, members = members >= STOPPED, members % STOPPED
            assert members.bit_count() == hvd.size() and members & (1 << SLOT), (members, hvd.size())
            state.step += 1
            print(f"step {state.step} rank {hvd.rank()} of {hvd.size()} members {members}", flush=True)
            if is_over:
                return
            if state.step % 2 == 0:
                state.commit()
            time.sleep(0.02)

    train(state)
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    print("weights", weights.numpy().tobytes().hex(), flush=True)
    hvd.shutdown()


main()
