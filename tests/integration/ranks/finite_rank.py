"""Runs a rank that reduces the same tensors step after step and plants values that are not finite. Prints what first_nonfinite()
says at the end.

Run as: finite_rank.py numpy|arena|torch STEPS FLOATS [RANK:STEP:TENSOR:VALUE...] [wait|pause]
Steps count from 1; tensors are w0, w1 and w2. "wait" goes on until the rank has been told, and "pause" then waits to be killed.
"""

import sys
import time

import numpy as np

NAMES = ("w0", "w1", "w2")


def parse(words):
    planted = {}
    for word in words:
        rank, step, tensor, value = word.split(":")
        planted[int(rank), int(step), tensor] = float(value)
    return planted


def run_numpy(in_arena, steps, floats, planted):
    import rueda
    rueda.init()
    make = rueda.empty if in_arena else np.empty
    arrays = [make((floats,), np.float32) for _ in NAMES]
    for step in range(1, steps + 1):
        for name, array in zip(NAMES, arrays):
            array[:] = 1
            if (rueda.rank(), step, name) in planted:
                array[floats // 2] = planted[rueda.rank(), step, name]
        handles = [rueda.allreduce_async_(array, name=name) for name, array in zip(NAMES, arrays)]
        for handle in handles:
            rueda.synchronize(handle)
    return rueda


def run_torch(steps, floats, planted):
    import torch

    import rueda.torch as hvd
    hvd.init()
    torch.manual_seed(0)
    model = torch.nn.ParameterDict({name: torch.nn.Parameter(torch.ones(floats)) for name in NAMES})
    step = 0

    def plant(name, gradient):
        gradient = gradient.clone()
        if (hvd.rank(), step, name) in planted:
            gradient[floats // 2] = planted[hvd.rank(), step, name]
        return gradient

    for name in NAMES:
        model[name].register_hook(lambda gradient, name=name: plant(name, gradient))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.0),
                                         named_parameters=list(model.named_parameters()))
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        sum(parameter.sum() for parameter in model.values()).backward()
        optimizer.step()
    return hvd


def main():
    kind, steps, floats = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    words = sys.argv[4:]
    then = words.pop() if words[-1:] in (["wait"], ["pause"]) else ""
    planted = parse(words)
    if kind == "torch":
        library = run_torch(steps, floats, planted)
    else:
        library = run_numpy(kind == "arena", steps, floats, planted)
    first = library.first_nonfinite()
    while then and first is None:
        time.sleep(0.02)
        first = library.first_nonfinite()
    print(f"first {first}", flush=True)
    if then == "pause":
        time.sleep(600)
    library.shutdown()


if __name__ == "__main__":
    main()
