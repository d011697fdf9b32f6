"""Tests what stands on process groups beside training loops: functional collectives, also compiled ones; distributed checkpoints;
the coalescing manager; factors of a sum. PyTorch 1.13 has some of it."""

import itertools
import os
import shutil
import tempfile

import torch
import torch.distributed as dist
from distributed_collectives import end  # noqa: F401
from torch_support import expect_error

IS_2 = not torch.__version__.startswith("1.")


def premul(factor):
    return torch._C._distributed_c10d._make_nccl_premul_sum(factor)


def case_a_sum_with_a_factor():
    rank, size = dist.get_rank(), dist.get_world_size()
    total = size * (size + 1) / 2
    if not IS_2:
        expect_error(ValueError, "with 1.13 multiply the tensor", dist.all_reduce, torch.ones(2), op=premul(0.5))
        return
    for factor in (0.25, torch.tensor(0.25)):
        dist.all_reduce(tensor := torch.full((1000,), rank + 1.0), op=premul(factor))
        assert torch.equal(tensor, torch.full((1000,), total / 4)), tensor
    part = torch.empty(3)
    dist.reduce_scatter(part, [torch.full((3,), float(place)) for place in range(size)], op=premul(0.5))
    assert torch.equal(part, torch.full((3,), rank * size / 2)), part
    dist.reduce(tensor := torch.full((2,), rank + 1.0), 0, op=premul(2.0))
    assert rank > 0 or torch.equal(tensor, torch.full((2,), 2 * total)), tensor
    tensors = [torch.ones(4), torch.ones(5)]
    dist.all_reduce_coalesced(tensors, op=premul(0.5))
    assert all(torch.equal(tensor, torch.full_like(tensor, size / 2)) for tensor in tensors)
    if size > 1:
        expect_error(RuntimeError, "ranks disagree on tensor .*prescale", dist.all_reduce, torch.ones(2), premul(1.0 + rank))


def case_coalescing_manager():
    """On 1.13 it is for messages alone."""
    rank, size = dist.get_rank(), dist.get_world_size()
    manager = getattr(dist, "_coalescing_manager", None) or getattr(dist.distributed_c10d, "_coalescing_manager", None)
    if not IS_2 or manager is None:
        return
    for is_async, named in itertools.product((False, True), ({}, {"device": torch.device("cpu")})):
        tensors = [torch.full((3 + place,), float(rank)) for place in range(4)]
        whole, parts = [torch.empty(size * 2) for _ in range(3)], [torch.empty(2) for _ in range(3)]
        for begin in (lambda tensors=tensors: [dist.all_reduce(tensor) for tensor in tensors],
                      lambda whole=whole: [dist.all_gather_into_tensor(one, torch.full((2,), float(rank))) for one in whole],
                      lambda parts=parts: [dist.reduce_scatter_tensor(one, torch.arange(size * 2.0)) for one in parts]):
            with manager(async_ops=is_async, **named) as coalesced:
                begin()
            if is_async:
                coalesced.wait()
        assert all(torch.equal(tensor, torch.full_like(tensor, size * (size - 1) / 2)) for tensor in tensors), tensors
        assert all(torch.equal(one, torch.arange(size).repeat_interleave(2).float()) for one in whole), whole
        assert all(torch.equal(one, size * torch.arange(2.0 * rank, 2.0 * rank + 2)) for one in parts), parts
    with manager(device=torch.device("cpu")):
        pass


def functional(rows):
    """Goes through all functional collectives, as torch.compile sees them."""
    import torch.distributed._functional_collectives as functions

    world, size = dist.group.WORLD, dist.get_world_size()
    total = functions.all_reduce(rows * 2, "sum", world)
    whole = functions.all_gather_tensor(total + 1, 0, world)
    part = functions.reduce_scatter_tensor(whole, "avg", 0, world)
    turned = functions.all_to_all_single(part, [len(rows) // size] * size, [len(rows) // size] * size, world)
    sent = functions.broadcast(turned.sum(0), 0, world)
    first, second = functions.all_reduce_coalesced([sent, sent * 3], "max", world)
    return functions.wait_tensor(first + second)


def case_functional_collectives():
    if not IS_2:
        return
    size = dist.get_world_size()
    rows = torch.arange(4.0 * size).view(2 * size, 2) + dist.get_rank()
    expected = functional(rows)
    totals = 2 * (torch.arange(4.0 * size).view(2 * size, 2) * size + size * (size - 1) / 2) + 1
    # Each rank has the same totals, and gets from each rank the part of them that the rank has got the number of.
    on_rank_0 = torch.cat([totals[:2]] * size).sum(0)
    assert torch.allclose(expected, 4 * on_rank_0), (expected, 4 * on_rank_0)
    for backend in ("aot_eager", "inductor") if shutil.which("g++") else ("aot_eager",):
        torch._dynamo.reset()
        compiled = torch.compile(functional, backend=backend, fullgraph=True)
        for _ in range(2):
            assert torch.allclose(compiled(rows), expected), backend


def case_compiled_ddp():
    if not IS_2:
        return
    torch.manual_seed(1)
    rows = torch.randn(4, 8)

    def train(is_compiled):
        torch.manual_seed(2)
        net = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)))
        step = torch.compile(net, backend="aot_eager") if is_compiled else net
        for turn in range(3):
            net.zero_grad()
            (step(rows + dist.get_rank() + turn) ** 2).mean().backward()
        return [parameter.grad for parameter in net.parameters()]

    for found, expected in zip(train(True), train(False)):
        assert torch.allclose(found, expected, rtol=1e-5), (found, expected)


def case_distributed_checkpoint():
    """Each rank saves the parts that it has of DTensors, and reads them in another layout; and saves beside what goes on."""
    if not IS_2:
        return
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    rank, size = dist.get_rank(), dist.get_world_size()
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder)
    mesh = init_device_mesh("cpu", (size,))
    whole = torch.arange(6.0 * size * 4).view(6 * size, 4)
    state = {"part": distribute_tensor(whole, mesh, [Shard(0)]), "step": 7}
    checkpoint.save(state, checkpoint_id=os.path.join(folder[0], "now"))
    checkpoint.async_save(state, checkpoint_id=os.path.join(folder[0], "beside")).result()
    for name in ("now", "beside"):
        read = {"part": distribute_tensor(torch.zeros_like(whole), mesh, [Replicate()]), "step": 0}
        checkpoint.load(read, checkpoint_id=os.path.join(folder[0], name))
        assert torch.equal(read["part"].to_local(), whole) and read["step"] == 7
    dist.barrier()
    if rank == 0:
        shutil.rmtree(folder[0])


def case_batches_of_messages():
    rank, size = dist.get_rank(), dist.get_world_size()
    taken = [torch.zeros(5) for _ in range(3)]
    if size > 1:
        ops = [dist.P2POp(dist.irecv, one, (rank - 1) % size) for one in taken]
        ops += [dist.P2POp(dist.isend, torch.full((5,), rank + place / 2), (rank + 1) % size) for place in range(3)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        assert [one[0].item() for one in taken] == [(rank - 1) % size + place / 2 for place in range(3)], taken
