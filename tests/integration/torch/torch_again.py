"""Holds cases of torch_rank.py: a tensor that is reduced in place again under its name is reduced as it is now, whatever was
known of it before."""

import os
import threading

import rueda
import rueda.torch as hvd
import torch
from torch_support import expect_equal, expect_error, rank_and_size


def reduce_again(tensor, expected=None, name="again", value=None, **asked):
    rank, size = rank_and_size()
    tensor.copy_(torch.full(tensor.shape, float(rank if value is None else value)))
    result = hvd.synchronize(hvd.allreduce_async_(tensor, name=name, **{"op": hvd.Sum, **asked}))
    assert result is tensor
    total = float(sum(range(size))) if expected is None else expected
    expect_equal(tensor.resolve_neg(), torch.full(tensor.shape, total, dtype=tensor.dtype), asked)


def case_memory_that_is_another_tensor_now():
    memory = torch.from_numpy(rueda.empty((12,)))
    for _ in range(3):
        reduce_again(memory[:8])
    reduce_again(memory[:8].view(torch.int32))
    reduce_again(memory[:8].view(2, 4))
    reduce_again(memory[:8].view(4, 2).t())  # the shape of the last, and not contiguous
    reduce_again(memory[:8].view(2, 4))
    reduce_again(memory[2:10])
    same = memory[:8]
    reduce_again(same)
    same.resize_(4)
    reduce_again(same)
    same.set_(torch.zeros(4))
    reduce_again(same)
    reduce_again(memory[:4])
    reduce_again(torch._neg_view(memory[:4]))  # its elements are not what is there
    reduce_again(memory[:4])


def case_what_a_sum_of_equal_values_does_not_show():
    rank, size = rank_and_size()
    memory = torch.from_numpy(rueda.empty((16,)))
    ramp = torch.arange(4, dtype=torch.float32)

    def largest(tensor, values, expected):
        tensor.copy_(values)
        hvd.synchronize(hvd.allreduce_async_(tensor, name="largest", op=hvd.Max))
        expect_equal(tensor.resolve_neg(), expected)

    for _ in range(2):
        largest(memory[:4], ramp + rank, ramp + size - 1)
    numbers = memory[:4].view(torch.int32)
    largest(numbers, torch.full((4,), -1 - rank), torch.full((4,), -1, dtype=torch.int32))  # NaNs, as floats
    largest(memory[:4], ramp + rank, ramp + size - 1)
    beside = torch.full((4,), 100.0 + rank)
    memory[4:8] = beside
    largest(memory[:8:2], ramp + rank, ramp + size - 1)  # not contiguous: what lies between stays as it is
    expect_equal(memory[5:8:2], beside[:2])
    largest(memory[:4], ramp + rank, ramp + size - 1)
    largest(torch._neg_view(memory[:4]), ramp + rank, ramp + size - 1)
    tensors = [memory[:4]]
    for given in (tensors, tensors, [torch._neg_view(memory[:4])]):
        given[0].copy_(ramp + rank)
        hvd.grouped_allreduce_(given, name="largest", op=hvd.Max)
        expect_equal(given[0].resolve_neg(), ramp + size - 1)


def case_freed_memory():
    for kind in (torch.float32, torch.int32, torch.float32):
        for shape in ((64,), (8, 8), (64,)):
            reduce_again(torch.zeros(shape, dtype=kind), name="freed")


def case_other_words():
    _, size = rank_and_size()
    total = float(sum(range(size)))
    tensor = torch.zeros(4)
    for _ in range(2):
        reduce_again(tensor, name="words")
        reduce_again(tensor, name="words", prescale_factor=0.5, expected=total * 0.5)
        reduce_again(tensor, name="words", postscale_factor=4.0, expected=total * 4)
        reduce_again(tensor, name="words", postscale_factor=2.0, expected=total * 2)
        reduce_again(tensor, name="words", op=hvd.Max, expected=size - 1.0)
        reduce_again(tensor, name="words", op=None, expected=total / size)
        reduce_again(tensor, name="words", op=None, average=False)
        reduce_again(tensor, name="words", op=None, average=0, expected=total / size)
        reduce_again(tensor, name="other words")
    for wrong, kind in (({"op": 77}, ValueError), ({"prescale_factor": float("nan")}, ValueError),
                        ({"process_set": [0]}, TypeError), ({"average": True}, ValueError)):
        expect_error(kind, "", hvd.allreduce_async_, tensor, name="words", **{"op": hvd.Sum, **wrong})
    expect_error(TypeError, "must be a torch.Tensor", hvd.allreduce_async_, 7, name="words", op=hvd.Sum)
    for _ in range(2):
        reduce_again(tensor, name=["no", "str"])  # as Horovod's, which formats it
    expect_error(ValueError, "sparse", hvd.allreduce_async_, tensor.to_sparse(), name="words", op=hvd.Sum)


def case_a_name_in_flight():
    if hvd.size() == 1:
        return
    tensor = torch.zeros(4)
    reduce_again(tensor, name="busy")
    if hvd.rank() == 0:
        handle = hvd.allreduce_async_(tensor, name="busy", op=hvd.Sum)
        expect_error(ValueError, "in flight already", hvd.allreduce_async_, tensor, name="busy", op=hvd.Sum)
    hvd.barrier()
    if hvd.rank() != 0:
        handle = hvd.allreduce_async_(tensor, name="busy", op=hvd.Sum)
    hvd.synchronize(handle)


def case_process_sets():
    rank, size = rank_and_size()
    if size == 1:
        return
    tensor = torch.zeros(4)
    for _ in range(2):
        added = hvd.add_process_set([0])
        for _ in range(2):
            reduce_again(tensor, name="set", value=rank + 1, expected=size * (size + 1) / 2)
            if rank == 0:
                reduce_again(tensor, name="set", value=3, expected=3.0, process_set=added)
        hvd.remove_process_set(added)
        expect_error(ValueError, "has not been added", hvd.allreduce_async_, tensor, name="set", process_set=added)


def case_two_threads():
    failed = []

    def work(number):
        try:
            tensor = torch.zeros(16)
            for _ in range(100):
                reduce_again(tensor, name=f"thread.{number}")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed


def case_a_forked_child():
    tensor = torch.zeros(4)
    reduce_again(tensor, name="fork")
    child = os.fork()
    if child == 0:
        try:
            hvd.allreduce_async_(tensor, name="fork", op=hvd.Sum)
        except rueda.RuedaError as error:
            os._exit(0 if "forked child" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    reduce_again(tensor, name="fork")


def case_another_session():
    tensor = torch.from_numpy(rueda.empty((4,)))
    for _ in range(3):
        reduce_again(tensor, name="session")
    hvd.shutdown()
    expect_error(ValueError, "has not been initialized", hvd.allreduce_async_, tensor, name="session", op=hvd.Sum)
    hvd.init()
    reduce_again(tensor, name="session")
