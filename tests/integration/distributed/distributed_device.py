"""Tests torch.distributed on Rueda with tensors in a GPU's memory."""

import warnings
from datetime import timedelta

import torch
import torch.distributed as dist
from torch_on_gpu import CUDA

import rueda


def ranks():
    return dist.get_rank(), dist.get_world_size()


def read(tensor):
    return CUDA.to_host(tensor)


def full(value, count=1000):
    return CUDA.put(torch.full((count,), float(value)))


def expect(tensor, value):
    assert CUDA.find(tensor) is not None
    assert bool((read(tensor) == value).all()), (tensor, value)


def case_all_reduce():
    rank, size = ranks()
    before = rueda.device_stats().submissions
    for op, value in ((dist.ReduceOp.SUM, size * (size + 1) / 2), (dist.ReduceOp.MAX, size), (dist.ReduceOp.MIN, 1)):
        tensor = full(rank + 1)
        dist.all_reduce(tensor, op)
        expect(tensor, value)
    assert rueda.device_stats().submissions == before + 3


def case_coalesced_calls_agree_on_their_number_first():
    """The reductions begin in another thread, and still in the order of the stream on which they were called."""
    rank, size = ranks()
    tensors = [full(rank + i) for i in range(3)]
    CUDA.gate.stop(CUDA.stream)
    work = dist.group.WORLD.allreduce_coalesced(tensors)
    assert work.wait() is True and not work.is_completed()
    CUDA.gate.open()
    for i, tensor in enumerate(tensors):
        expect(tensor, size * (size - 1) / 2 + size * i)
    try:
        dist.group.WORLD.allreduce_coalesced(tensors[:2 if rank else 3]).wait(timedelta(seconds=30))
        assert size == 1
    except RuntimeError as error:
        assert "all_reduce of 3 tensors" in str(error) and "all_reduce of 2 tensors" in str(error), error
    tensor = full(rank)
    dist.all_reduce(tensor)
    expect(tensor, size * (size - 1) / 2)


def case_broadcast():
    rank, size = ranks()
    for root in range(size):
        tensor = full(rank)
        dist.broadcast(tensor, root)
        expect(tensor, root)


def case_wait_lets_the_stream_wait_and_not_the_host():
    rank, size = ranks()
    tensor = full(rank)
    CUDA.gate.stop(CUDA.stream)
    work = dist.all_reduce(tensor, async_op=True)
    assert work.wait() is True
    assert not CUDA.gpu.is_idle(CUDA.stream) and not work.is_completed()
    CUDA.gate.open()
    expect(tensor, size * (size - 1) / 2)
    assert work.wait() is True
    assert work.wait(timedelta(seconds=30)) is True and work.is_completed()


def case_a_timeout_is_waited_for_on_the_host():
    rank, size = ranks()
    tensor = full(rank)
    CUDA.gate.stop(CUDA.stream)
    work = dist.all_reduce(tensor, async_op=True)
    try:
        work.wait(timedelta(seconds=0.1))
        raise AssertionError("there is no input yet")
    except RuntimeError as error:
        assert "Timed out" in str(error), error
    CUDA.gate.open()
    work.wait(timedelta(seconds=30))
    assert bool((tensor == size * (size - 1) / 2).all())


def case_futures():
    rank, size = ranks()
    tensor = full(rank)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    assert future.wait()[0].data_ptr() == tensor.data_ptr()
    assert bool((tensor == size * (size - 1) / 2).all())


def case_the_driver_is_hardly_asked():
    """PyTorch's allocator is watched from init_process_group on."""
    tensor = full(1)
    before = rueda.device_stats()
    for _ in range(100):
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
    expect(tensor, 1)
    after = rueda.device_stats()
    checks, hits = after.buffer_checks - before.buffer_checks, after.cache_hits - before.cache_hits
    assert hits >= 199, hits
    assert checks <= 1 or not CUDA.has_watched_segments(), checks


def case_many_steps():
    rank, size = ranks()
    tensors = [full(rank, 100 * (i + 1)) for i in range(4)]
    for _ in range(30):
        for tensor in tensors:
            tensor.fill_(rank)
        for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
            work.wait()
        CUDA.synchronize()
        assert all(bool((tensor == size * (size - 1) / 2).all()) for tensor in tensors)


def case_all_others_go_through_the_host_and_say_so():
    rank, size = ranks()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        outputs = [full(-1) for _ in range(size)]
        dist.all_gather(outputs, full(rank))
        for other, output in enumerate(outputs):
            expect(output, other)
        target = full(-1)
        dist.reduce_scatter(target, [full(rank + 1) for _ in range(size)])
        expect(target, size * (size + 1) / 2)
        target = full(rank + 1)
        dist.reduce(target, 0)
        expect(target, size * (size + 1) / 2 if rank == 0 else rank + 1)
        received, given = full(-1, size), CUDA.put(torch.full((size,), float(rank)))
        dist.all_to_all_single(received, given)
        assert read(received).tolist() == [float(other) for other in range(size)]
        expect(given, rank)
        outputs = [full(-1) for _ in range(size)] if rank == 0 else None
        dist.gather(full(rank), outputs, 0)
        for other, output in enumerate(outputs or []):
            expect(output, other)
        target = full(-1)
        dist.scatter(target, [full(other) for other in range(size)] if rank == 0 else None, 0)
        expect(target, rank)
        target = full(-1)
        if rank == 0:
            for other in range(1, size):
                dist.send(full(5), other)
        else:
            assert dist.recv(target, 0) == 0
            expect(target, 5)
        bits = CUDA.put(torch.full((4,), 1 << rank, dtype=torch.int64))
        dist.all_reduce(bits, dist.ReduceOp.BOR)
        assert read(bits).tolist() == [(1 << size) - 1] * 4
    told = {str(one.message).partition(" of tensors")[0] for one in caught if "GPU" in str(one.message)}
    assert {"an all_gather", "a reduce", "a reduce_scatter", "an all_to_all", "a gather", "a scatter",
            "a bitwise all_reduce"} <= told, told
