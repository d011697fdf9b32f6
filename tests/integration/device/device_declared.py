"""Scenarios of device_rank.py: plans declared ahead, with tensors in the memory of a GPU."""

import numpy as np
import rueda
from device_support import NO_STREAM, SUM, allreduce_async, grouped_async, tensor, wait
from device_tools import COUNT, Buffer, expect, say
from rueda._core import _plans
from rueda._core._operations import make_options


def _planned(name, group=None, is_on_device=True):
    return _plans.Planned(tensor(name, None, None, [COUNT], "float32"), make_options(rueda.Sum, 1.0, 1.0), group, (), is_on_device)


def declared(gpu):
    """Declares a step of two tensors in device memory, a group there, and a tensor in host memory; then makes steps."""
    buffers = [Buffer(gpu, np.zeros(COUNT, np.float32)) for _ in range(4)]
    plan = [_planned("one"), _planned("other"), _planned("left", "pair"), _planned("right", "pair"),
            _planned("host", is_on_device=False)]
    try:
        _plans.declare(plan)
    except rueda.RuedaError as error:
        say(f"error {error}")
    for step in range(5):
        for number, buffer in enumerate(buffers):
            gpu.write(buffer.at, np.full(COUNT, step + number, np.float32))
        handles = [allreduce_async(name, buffer.at, buffer.at, [COUNT], "float32", SUM)
                   for name, buffer in zip(("one", "other"), buffers)]
        pair = [tensor(name, buffer.at, buffer.at, [COUNT], "float32") for name, buffer in zip(("left", "right"), buffers[2:])]
        handles.append(grouped_async("pair", pair, SUM, NO_STREAM))
        on_host = rueda.allreduce_async(np.full(COUNT, step, np.float32), op=rueda.Sum, name="host")
        for handle in handles:
            wait(handle)
        for number, buffer in enumerate(buffers):
            expect((buffer.get() == (step + number) * rueda.size()).all(), f"{number} in step {step}")
        expect((rueda.synchronize(on_host) == step * rueda.size()).all(), f"host memory in step {step}")
    say("ok declared")
