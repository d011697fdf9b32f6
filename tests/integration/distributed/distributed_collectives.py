"""Tests every collective of torch.distributed, beside Gloo's."""

import os
import sys
import weakref
from datetime import timedelta

import torch
import torch.distributed as dist
from torch_support import expect_error

import rueda

_gloo = []


def gloo():
    if not _gloo:
        _gloo.append(dist.new_group(backend="gloo"))
    return _gloo[0]


def end():
    rueda.shutdown()
    sys.stdout.flush()
    os._exit(0)  # Gloo's threads may hang at the end of a process


def made(*shape, dtype=torch.float32, what=0):
    """Returns a tensor with other values on each rank: small integers, whose sums are exact in every dtype."""
    torch.manual_seed(1000 * what + dist.get_rank())
    return torch.randint(0, 4, shape).to(dtype)


def both(function, *tensors, **named):
    """Checks that function(group=..., *clones) gives the same tensors with Rueda and with Gloo."""
    found, expected = [tensor.clone() for tensor in tensors], [tensor.clone() for tensor in tensors]
    function(*found, **named)
    function(*expected, group=gloo(), **named)
    for ours, theirs in zip(found, expected):
        assert ours.dtype == theirs.dtype and torch.equal(ours, theirs), (function, ours, theirs)
    return found


def case_all_reduce():
    for dtype in (torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.int8):
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX):
            both(dist.all_reduce, made(5, 3, dtype=dtype), op=op)
    for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
        both(dist.all_reduce, made(7, dtype=torch.int32), op=op)
    both(dist.all_reduce, made(100_000))
    both(dist.all_reduce, torch.tensor(3.5))
    both(dist.all_reduce, made(6, 4).t())


def case_dtypes_that_gloo_cannot_reduce():
    rank, size = dist.get_rank(), dist.get_world_size()
    for op, wanted in ((dist.ReduceOp.SUM, size * (size - 1) // 2 - 300 * size), (dist.ReduceOp.MIN, -300),
                       (dist.ReduceOp.MAX, size - 301)):
        tensor = torch.full((5,), rank - 300, dtype=torch.int16)
        dist.all_reduce(tensor, op=op)
        assert torch.equal(tensor, torch.full((5,), wanted, dtype=torch.int16)), tensor
    for dtype in (torch.complex64, torch.complex128):
        part = torch.zeros(2, dtype=dtype)
        dist.reduce_scatter(part, [torch.full((2,), 1j * other + rank, dtype=dtype) for other in range(size)])
        assert torch.equal(part, torch.full((2,), 1j * rank * size + size * (size - 1) / 2, dtype=dtype)), part


def case_tensors_of_collectives_that_have_ended_are_freed():
    """On PyTorch 1.13 the last 1024 collectives once kept their tensors."""
    freed = []
    for _ in range(100):
        tensors = [torch.empty(1000) for _ in range(dist.get_world_size())]
        dist.all_gather(tensors, torch.ones(1000))
        weakref.finalize(tensors[0], freed.append, 1)
        del tensors
    assert len(freed) >= 90, len(freed)


def case_all_reduce_of_complex_numbers():
    both(dist.all_reduce, torch.complex(made(4), made(4, what=1)))


def case_average():
    tensor = torch.full((3,), float(dist.get_rank()))
    dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
    assert torch.equal(tensor, torch.full((3,), (dist.get_world_size() - 1) / 2))


def case_all_reduce_of_sparse_tensors():
    rank, size = dist.get_rank(), dist.get_world_size()
    tensor = torch.sparse_coo_tensor([[0, rank + 1]], [[1.0, 2.0], [3.0, 4.0]], (size + 1, 2))
    dist.all_reduce(tensor)
    expected = torch.zeros(size + 1, 2)
    expected[0] = torch.tensor([1.0, 2.0]) * size
    expected[1:] = torch.tensor([3.0, 4.0])
    assert torch.equal(tensor.to_dense(), expected)


def case_broadcast():
    for root in range(dist.get_world_size()):
        for dtype in (torch.float32, torch.int16, torch.bool, torch.bfloat16):
            tensor = made(9, dtype=dtype, what=root)
            expected = [tensor.clone() for _ in range(dist.get_world_size())]
            dist.all_gather_object(objects := [None] * len(expected), tensor)
            dist.broadcast(tensor, root)
            assert torch.equal(tensor, objects[root]), (tensor, objects)


def case_reduce():
    for root in range(dist.get_world_size()):
        tensor = made(11, what=root)
        total = tensor.clone()
        dist.all_reduce(total)
        dist.reduce(tensor, root)
        if dist.get_rank() == root:
            assert torch.equal(tensor, total)


def case_all_gather():
    size = dist.get_world_size()
    for dtype in (torch.float32, torch.int16, torch.complex64):
        own = made(4, 2, dtype=dtype)
        found, expected = [torch.zeros_like(own) for _ in range(size)], [None] * size
        dist.all_gather(found, own)
        dist.all_gather_object(expected, own, group=gloo())
        assert all(map(torch.equal, found, expected))
    flat = torch.zeros(4 * size, 2)
    gather_into = getattr(dist, "all_gather_into_tensor", None) or dist._all_gather_base
    gather_into(flat, made(4, 2))
    dist.all_gather(found := [torch.zeros(4, 2) for _ in range(size)], made(4, 2))
    assert torch.equal(flat, torch.cat(found))


def case_gather_and_scatter():
    rank, size = dist.get_rank(), dist.get_world_size()
    for root in range(size):
        own = made(3, 2, what=root)
        gathered = [torch.zeros(3, 2) for _ in range(size)] if rank == root else None
        dist.gather(own, gathered, dst=root)
        back = torch.zeros(3, 2)
        dist.scatter(back, gathered, src=root)
        assert torch.equal(back, own)


def case_reduce_scatter():
    rank, size = dist.get_rank(), dist.get_world_size()
    parts = [made(5, what=place) for place in range(size)]
    total = torch.stack(parts)
    dist.all_reduce(total)
    out = torch.zeros(5)
    dist.reduce_scatter(out, [part.clone() for part in parts])
    assert torch.equal(out, total[rank])
    into = getattr(dist, "reduce_scatter_tensor", None) or dist._reduce_scatter_base
    out.zero_()
    into(out, torch.cat(parts))
    assert torch.equal(out, total[rank])


def case_all_to_all():
    rank, size = dist.get_rank(), dist.get_world_size()
    given = torch.arange(2 * size, dtype=torch.float32) + 100 * rank
    taken = torch.zeros(2 * size)
    dist.all_to_all_single(taken, given)
    assert torch.equal(taken, torch.cat([torch.arange(2 * rank, 2 * rank + 2.0) + 100 * other for other in range(size)]))
    # Rank i sends j + 1 rows to rank j.
    rows = [place + 1 for place in range(size)]
    given = torch.full((sum(rows), 2), float(rank))
    taken = torch.zeros((rank + 1) * size, 2)
    dist.all_to_all_single(taken, given, [rank + 1] * size, rows)
    assert torch.equal(taken, torch.arange(float(size)).repeat_interleave(rank + 1)[:, None].expand(-1, 2))
    lists = [torch.zeros(rank + 1, 2) for _ in range(size)]
    dist.all_to_all(lists, list(given.split(rows)))
    assert torch.equal(torch.cat(lists), taken)


def case_all_to_all_with_equal_splits_on_some_ranks_alone():
    """It was an error, as ranks with splits tell their sizes first. The names of later calls still agree."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for some in (rank == 0, rank > 0, rank % 2 == 1):
        splits = ([2] * size, [2] * size) if some else (None, None)
        for dtype in (torch.float32, torch.int64, torch.uint8, torch.bool, torch.complex64, torch.int16):
            given, found, expected = made(2 * size, 3, dtype=dtype), *(torch.zeros(2 * size, 3, dtype=dtype) for _ in range(2))
            work = dist.all_to_all_single(found, given, *splits, async_op=True)
            dist.all_to_all_single(expected.view(torch.uint8), given.view(torch.uint8), group=gloo())
            work.wait()
            assert torch.equal(found, expected), (found, expected)
            both(dist.all_reduce, made(5))


def case_all_to_all_with_other_splits_on_some_ranks_alone():
    """A rank without splits sends each rank as much, which is what the others' splits say of it."""
    rank, size = dist.get_rank(), dist.get_world_size()
    if size < 3:
        return
    rows = [1] * size
    if rank in (1, 2):  # one row less to themselves, and one more to each other
        rows[rank], rows[3 - rank] = 0, 2
    splits = (rows, rows) if rank in (1, 2) else (None, None)
    for _ in range(3):
        given = torch.arange(size * 2.0).view(size, 2) + 100 * rank
        both(lambda out, group=None: dist.all_to_all_single(out, given, *splits, group=group), torch.zeros(size, 2))  # noqa: B023
        both(dist.all_reduce, made(5))
    # It takes two from rank 2, and says that it takes one.
    if rank == 1:
        splits = (None, [0, 0, size, *[0] * (size - 3)])
    for _ in range(3):
        expect_error(ValueError, r"rank 1 sends \d+ elements to rank \d, whose output has \d+ for them; output_split_sizes must say",
                     dist.all_to_all_single, torch.zeros(size, 2), torch.zeros(size, 2), *splits)
        both(dist.all_reduce, made(5))


def case_all_to_all_with_splits_that_do_not_fit_on_one_rank():
    """The one rank had an error, and the others once waited until their timeout."""
    rank, size = dist.get_rank(), dist.get_world_size()
    if size == 1:
        return
    text = "rank 0 sends 2 elements to rank 1, whose output has 4 for them"
    given, rows = torch.ones(size, 2), [1] * size
    wrong = [2, 0, *rows[2:]] if rank == 1 else rows
    expect_error(ValueError, text, dist.all_to_all_single, torch.zeros(size, 2), given, wrong, rows)
    # The rows have another size: elements count, and not rows.
    expect_error(ValueError, text, dist.all_to_all_single, torch.zeros(size, 4 if rank == 1 else 2), given, rows, rows)
    lists = [torch.zeros(4 if rank == 1 else 2) for _ in range(size)]
    expect_error(ValueError, text, dist.all_to_all, lists, list(given))
    dist.all_to_all_single(torch.zeros(2 * size), given.view(-1), [2] * size, [2] * size)


def case_outputs_of_another_size_or_dtype_are_refused():
    """The daemon once wrote beyond the end of outputs, or rows to the wrong rank."""
    size = dist.get_world_size()
    into = getattr(dist, "reduce_scatter_tensor", None) or dist._reduce_scatter_base
    group = dist.group.WORLD  # PyTorch 1.13 and 2 check different things before
    root = dist.ScatterOptions()
    root.rootRank = dist.get_rank()
    expect_error(ValueError, f"output has {size} elements, and input {2 * size}", dist.all_to_all_single, torch.ones(size),
                 torch.ones(2 * size))
    narrow, wide = [torch.ones(2, dtype=torch.int8) for _ in range(size)], [torch.ones(2, dtype=torch.float64)] * size
    for function, arguments in (
            (into, (narrow[0], torch.cat(wide))), (group.reduce_scatter, ([narrow[0]], [wide])),
            (group.alltoall_base, (torch.cat(narrow), torch.cat(wide), [], [])), (group.alltoall, (narrow, wide)),
            (group.gather, ([narrow], wide[:1], root)), (group.scatter, (narrow[:1], [wide], root))):
        expect_error(ValueError, "must have one dtype, not torch.(int8|float64) and torch.(int8|float64)", function, *arguments)
    if size > 1:
        uneven = [torch.ones(1), torch.ones(3), *(torch.ones(2) for _ in range(size - 2))]
        expect_error(ValueError, r"scatter_list\[0\] has 1 elements; it must have as many as tensor: 2", group.scatter,
                     [torch.ones(2)], [uneven], root)
        expect_error(ValueError, r"gather_list\[0\] has 1 elements; it must have as many as tensor: 2", group.gather, [uneven],
                     [torch.ones(2)], root)



def case_objects():
    rank, size = dist.get_rank(), dist.get_world_size()
    found = [None] * size
    dist.all_gather_object(found, {"rank": rank, "text": "x" * rank})
    assert found == [{"rank": other, "text": "x" * other} for other in range(size)]
    told = [("from", 0), 7] if rank == 0 else [None, None]
    dist.broadcast_object_list(told, src=0)
    assert told == [("from", 0), 7]
    gathered = [None] * size if rank == size - 1 else None
    dist.gather_object(rank, gathered, dst=size - 1)
    assert gathered is None or gathered == list(range(size))
    dist.scatter_object_list(mine := [None], [f"for {other}" for other in range(size)] if rank == 0 else None, src=0)
    assert mine == [f"for {rank}"]


def case_many_at_a_time():
    """There are more collectives of one kind than have names of their own."""
    tensors = [torch.full((10,), float(i)) for i in range(300)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    other = dist.all_reduce(torch.ones(3), async_op=True)
    for work in reversed(works):
        work.wait()
    other.wait()
    for i, tensor in enumerate(tensors):
        assert torch.equal(tensor, torch.full((10,), float(i * dist.get_world_size())))
    assert all(work.is_completed() and work.is_success() for work in works)


def case_nobody_keeps_the_work():
    """The memory of what is under way lives until it has ended."""
    for _ in range(50):
        dist.all_reduce(torch.ones(20_000), async_op=True)
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total.item() == dist.get_world_size()


def case_futures():
    tensor = torch.ones(5)
    future = dist.all_reduce(tensor, async_op=True).get_future().then(lambda done: done.value()[0] * 2)
    assert torch.equal(future.wait(), torch.full((5,), 2.0 * dist.get_world_size()))


def case_errors():
    half = torch.ones(2, dtype=torch.complex32)
    expect_error(ValueError, "torch.complex32 is not supported", dist.reduce_scatter, half, [half] * dist.get_world_size())
    expect_error(ValueError, "tensor_list must have one for each of the", dist.all_gather,
                 [torch.ones(1)] * (dist.get_world_size() + 1), torch.ones(1))


def case_ranks_that_disagree_are_told_at_once():
    """Ranks are told whichever call it is, also in a step that repeats. The text has both versions, and the group goes on."""
    rank, size = dist.get_rank(), dist.get_world_size()
    if size == 1:
        return

    def step():
        for count in (3, 4, 3, 5):
            dist.all_reduce(torch.ones(count))

    def wrong(right, other):
        (right if rank else other)()

    cases = (
        ("dtype is (float|int)32 on rank 0 and (float|int)32 on rank", lambda: dist.all_reduce(torch.ones(4)),
         lambda: dist.all_reduce(torch.ones(4, dtype=torch.int32))),
        (r"shape is \[\d\] on rank 0 and \[\d\]", lambda: dist.all_reduce(torch.ones(4)),
         lambda: dist.all_reduce(torch.ones(3))),
        ("op is", lambda: dist.all_reduce(torch.ones(4)), lambda: dist.all_reduce(torch.ones(4), dist.ReduceOp.MAX)),
        ("root rank is", lambda: dist.broadcast(torch.ones(4), 0), lambda: dist.broadcast(torch.ones(4), 1)),
        ("collective is", lambda: dist.all_reduce(torch.ones(4)), lambda: dist.broadcast(torch.ones(4), 0)),
        ("collective is", lambda: dist.all_reduce(torch.ones(4)), dist.barrier),
        ("dtype is .*: give all_to_all_single tensors of one dtype on all ranks", lambda: dist.all_to_all_single(
            torch.ones(size), torch.ones(size)), lambda: dist.all_to_all_single(torch.ones(size).double(), torch.ones(
                size).double(), None, [1] * size)),
        ("shape is .*, of one size", lambda: dist.all_to_all_single(torch.ones(size), torch.ones(size)),
         lambda: dist.all_to_all_single(torch.ones(2 * size), torch.ones(2 * size))),
        # Each rank once had another result, and no error.
        ("shape is .*: give all_reduce the same op on all ranks",
         lambda: dist.all_reduce(torch.ones(4, dtype=torch.int32), dist.ReduceOp.BAND),
         lambda: dist.all_reduce(torch.ones(4, dtype=torch.int32), dist.ReduceOp.BXOR)),
    )
    for before in (0, 1, 5):
        for text, right, other in cases:
            for _ in range(before):
                step()
            dist.all_reduce(torch.ones(3))
            expect_error(RuntimeError, f"ranks disagree on tensor .*{text}", wrong, right, other)
    step()


def coalesced(what, count):
    """Begins one of the calls that PyTorch's _coalescing_manager makes, with so many tensors."""
    size, group = dist.get_world_size(), dist.group.WORLD
    small, large = [torch.ones(3) for _ in range(count)], [torch.ones(3 * size) for _ in range(count)]
    if what == "all_reduce":
        group.allreduce_coalesced(small).wait()
        return small
    if what == "manager":
        with dist.distributed_c10d._coalescing_manager():
            for tensor in small:
                dist.all_reduce(tensor)
        return small
    if what == "reduce_scatter":
        group.reduce_scatter_tensor_coalesced(small, large).wait()
        return small
    group.allgather_into_tensor_coalesced(large, small).wait()
    return large


def case_coalesced_calls_of_other_numbers_of_tensors_are_told_at_once():
    """The rank with more tensors once waited until its timeout, and what it had left met the next calls."""
    rank, size = dist.get_rank(), dist.get_world_size()
    values = {"all_reduce": float(size), "reduce_scatter": float(size), "all_gather": 1.0}
    for what, value in values.items():
        for few, many in ((2, 3), (1, 2), (0, 1)) if size > 1 else ():
            for mine, theirs in ((few, many), (many, few)):
                found = rf"is \"[^\"]*: {what} of (\d) tensors?\" on rank \d and \"[^\"]*: {what} of (\d) tensors?\" on rank \d"
                expect_error(RuntimeError, f"{found}.*the ranks must give as many tensors to a coalesced call", coalesced, what,
                             mine if rank == 0 else theirs)
        for count in (0, 1, 4):
            assert all(torch.equal(tensor, torch.full_like(tensor, value)) for tensor in coalesced(what, count))
    if not torch.__version__.startswith("1."):  # where the manager is for messages alone
        if size > 1:
            expect_error(RuntimeError, "all_reduce of . tensors?.* all_reduce of . tensors?", coalesced, "manager", 2 if rank else 3)
        assert coalesced("manager", 2)[1][0] == size
    if size > 1:
        expect_error(RuntimeError, "ranks disagree on tensor", lambda: coalesced("all_reduce", 2) if rank else dist.all_reduce(
            torch.ones(3)))
        expect_error(RuntimeError, "ranks disagree on tensor", lambda: coalesced("reduce_scatter", 2) if rank else coalesced(
            "all_gather", 2))
    both(dist.all_reduce, made(5))


def case_of_a_timeout():
    """The operation goes on."""
    if dist.get_world_size() == 1:
        return
    total, token = torch.ones(1), torch.zeros(1)
    if dist.get_rank() == 0:
        work = dist.all_reduce(total, async_op=True)
        expect_error(RuntimeError, "all_reduce: Timed out after 0.2 s", work.wait, timedelta(seconds=0.2))
        for rank in range(1, dist.get_world_size()):
            dist.send(token, rank)
        work.wait()
    else:
        dist.recv(token, 0)
        dist.all_reduce(total)
    assert total.item() == dist.get_world_size()


def case_copies():
    """Tensors from rueda.empty are reduced where they are."""
    memory = torch.from_numpy(rueda.empty(1000))
    before = rueda.stats()
    memory.fill_(1.0)
    dist.all_reduce(memory)
    after = rueda.stats()
    assert before.bytes_copied_in == after.bytes_copied_in and memory[0] == dist.get_world_size()
