"""The last rank dies while the others' streams wait for it: the streams go on, and the next call says who died."""

import os
import signal

import rueda.torch as hvd
import torch
from torch_on_gpu import CUDA
from torch_support import rank_and_size


def die_or_leave_it_to_the_stream():
    rank, size = rank_and_size()
    tensor = CUDA.put(torch.ones(1000))
    hvd.allreduce_(tensor, name="all are here")
    CUDA.synchronize()
    if rank == size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    hvd.allreduce_(tensor, name="one is not")  # this thread does not wait
    CUDA.synchronize()


def error_of(function, *arguments):
    try:
        function(*arguments)
    except hvd.HorovodInternalError as error:
        return error
    raise AssertionError("nobody was told")


def end(error):
    print(f"told: {error}", flush=True)
    os._exit(1)


def case_next_reduction():
    die_or_leave_it_to_the_stream()
    end(error_of(hvd.allreduce_, CUDA.put(torch.ones(10))))


def case_saving_a_state():
    """A state that is worth nothing is not kept."""
    module = torch.nn.Linear(2, 2)
    state = hvd.elastic.TorchState(model=module)
    with torch.no_grad():
        module.weight.fill_(7.0)
    die_or_leave_it_to_the_stream()
    error = error_of(state.save)
    state.restore()
    assert not bool((module.weight == 7.0).any())
    end(error)
