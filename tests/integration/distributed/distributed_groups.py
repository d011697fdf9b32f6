"""Tests groups of some of the ranks, and messages from one rank to another."""

import gc
import os
import shutil
import tempfile
import threading
import time
import weakref
from datetime import timedelta

import torch
import torch.distributed as dist
from distributed_collectives import end  # noqa: F401
from torch_support import expect_error

import rueda.distributed
from rueda.distributed import _futures


def case_new_group():
    rank, size = dist.get_rank(), dist.get_world_size()
    for first in range(size):
        ranks = list(range(first, size))
        group = dist.new_group(ranks)
        if rank in ranks:
            tensor = torch.full((4,), float(rank))
            dist.all_reduce(tensor, group=group)
            assert torch.equal(tensor, torch.full((4,), float(sum(ranks))))
            dist.broadcast(tensor, ranks[-1], group=group)
            root = torch.full((1,), float(rank))
            dist.reduce(root, ranks[0], group=group)
            assert rank != ranks[0] or root.item() == sum(ranks)
            dist.barrier(group=group)


def case_options():
    """The options' timeout counts more than the call's."""
    short, long = timedelta(seconds=7), timedelta(seconds=50)
    assert dist.group.WORLD.options._timeout == timedelta(seconds=dist.group.WORLD.seconds)
    for options, timeout, expected in ((rueda.distributed.Options(short), long, short), (rueda.distributed.Options(), long, long),
                                       (None, short, short)):
        group = dist.new_group(timeout=timeout, pg_options=options)
        assert group.options.backend == "rueda" and group.options._timeout == expected, group.options._timeout
        assert group.options.global_ranks_in_group == list(range(dist.get_world_size()))
    expect_error(TypeError, "must be a rueda.distributed.Options, not builtins.dict", dist.new_group, pg_options={})
    expect_error(ValueError, "timeout=0:00:00 must be more than 0", rueda.distributed.Options, timedelta())


def case_group_of_the_ranks_of_a_process_set():
    """The program has a process set of its own of the same ranks; there was once an error that it exists already."""
    rank, size = dist.get_rank(), dist.get_world_size()
    ranks = [0, size - 1]  # no case before this one has made a group of them
    if size < 3:
        return
    own = rueda.add_process_set(ranks)
    for _ in range(2):
        group = dist.new_group(ranks)
        if rank in ranks:
            dist.all_reduce(total := torch.ones(2), group=group)
            assert total[0] == len(ranks)
            dist.destroy_process_group(group)
    dist.barrier()
    rueda.remove_process_set(own)


def case_split_group():
    """PyTorch 1.13 has no split_group, and a group's own method is called."""
    rank, size = dist.get_rank(), dist.get_world_size()
    split = getattr(dist, "split_group", None)
    parts = [list(range(size))[::-1]] + [[rank] for rank in range(size)] + [list(range(1, size))] * (size > 1)
    world = dist.group.WORLD
    for ranks in parts:
        splits = [ranks, [other for other in range(size) if other not in ranks]]
        mine = next((part for part in splits if rank in part), ranks)
        if split is not None:
            group = split(world, [part for part in splits if part], timeout=timedelta(seconds=30), group_desc="part")
            assert dist.get_group_rank(group, rank) == mine.index(rank) and dist.get_process_group_ranks(group) == mine
        else:
            group = world.split_group(mine, timedelta(seconds=30))
        assert group.options._timeout == timedelta(seconds=30) and group.rank() == mine.index(rank)
        tensor = torch.full((4,), float(rank))
        group.allreduce([tensor]).wait()
        assert torch.equal(tensor, torch.full((4,), float(sum(mine)))), (tensor, mine)
        if split is not None:
            dist.broadcast(tensor, mine[-1], group=group)
            inner = split(group, [list(range(len(mine)))[::-1]])  # ranks of the group, and not of the job
            assert dist.get_process_group_ranks(inner) == mine[::-1]
            only = split(group, [[0]])
            assert (only is dist.GroupMember.NON_GROUP_MEMBER) == (rank != mine[0])
            dist.destroy_process_group(group)
    expect_error(ValueError, "must be different ranks of this group, from 0 to", world.split_group, [0, 0])
    expect_error(ValueError, "must be different ranks of this group, from 0 to", world.split_group, [size])


def case_groups_of_the_same_ranks():
    """Operations of different groups do not meet, in whatever order the ranks call them."""
    rank, size = dist.get_rank(), dist.get_world_size()
    groups = [dist.new_group(list(range(size))) for _ in range(3)]
    order = groups if rank % 2 == 0 else list(reversed(groups))
    tensors = {id(group): torch.full((8,), float(groups.index(group))) for group in order}
    works = [dist.all_reduce(tensors[id(group)], group=group, async_op=True) for group in order]
    for work in works:
        work.wait()
    for i, group in enumerate(groups):
        assert torch.equal(tensors[id(group)], torch.full((8,), float(i * size)))


def case_made_again():
    """A group is made and destroyed again and again, and its process set comes and goes."""
    rank, size = dist.get_rank(), dist.get_world_size()
    ranks = list(range(size - 1)) or [0]
    for i in range(100):
        group = dist.new_group(ranks)
        if rank in ranks:
            tensor = torch.ones(1)
            dist.all_reduce(tensor, group=group)
            assert tensor.item() == len(ranks)
            dist.destroy_process_group(group)
        if i % 10 == 0:
            dist.barrier()


def case_group_that_has_gone_leaves_no_thread():
    """The thread of each group that had made a future once lived for five seconds more; a fast job had dozens of them."""
    idle = _futures._IDLE_S
    _futures._IDLE_S = 3600.0
    for _ in range(20):
        group = dist.new_group()
        work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
        work.get_future().wait()
        dist.destroy_process_group(group)
    del group, work
    gc.collect()
    deadline = time.monotonic() + 60
    while any(is_of_a_group(thread) for thread in threading.enumerate()):
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.01)
    _futures._IDLE_S = idle


def is_of_a_group(thread):
    return thread.name.startswith("rueda-group-")


def case_group_that_is_destroyed_with_an_operation_in_flight():
    """The daemon goes on to write to the operation's memory, which was once given back with the group."""
    rank = dist.get_rank()
    group = dist.new_group()
    tensor = torch.ones(20_000)
    if rank == 0:
        freed = []
        weakref.finalize(tensor, freed.append, 1)
        dist.all_reduce(tensor, group=group, async_op=True)
        dist.destroy_process_group(group)
        del group, tensor
        gc.collect()
        assert dist.get_world_size() == 1 or not freed
        dist.barrier()
    else:
        dist.barrier()
        dist.all_reduce(tensor, group=group)
        assert tensor[-1] == dist.get_world_size()


def case_send_and_recv():
    rank, size = dist.get_rank(), dist.get_world_size()
    if size == 1:
        return
    after, before = (rank + 1) % size, (rank - 1) % size
    for count in (0, 1, 1000, 1_000_000):
        sending = dist.isend(torch.full((count,), float(rank)), after)
        taken = torch.empty(count)
        assert dist.recv(taken, before) == before
        sending.wait()
        assert torch.equal(taken, torch.full((count,), float(before)))


def case_tags():
    """Messages of one tag come in order, and those of another may overtake them."""
    rank = dist.get_rank()
    if dist.get_world_size() == 1 or rank > 1:
        return
    if rank == 0:
        works = [dist.isend(torch.tensor([float(i)]), 1, tag=tag) for tag in (1, 2) for i in range(20)]
        for work in works:
            work.wait()
    else:
        for tag in (2, 1):
            for i in range(20):
                dist.recv(taken := torch.zeros(1), 0, tag=tag)
                assert taken.item() == i


def case_from_any_rank():
    rank, size = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        seen = set()
        for _ in range(size - 1):
            source = dist.recv(taken := torch.zeros(3))
            assert torch.equal(taken, torch.full((3,), float(source)))
            seen.add(source)
        assert seen == set(range(1, size))
    else:
        dist.send(torch.full((3,), float(rank)), 0)


def case_batches_of_messages():
    rank, size = dist.get_rank(), dist.get_world_size()
    if size == 1:
        return
    taken = torch.zeros(5)
    ops = [dist.P2POp(dist.isend, torch.full((5,), float(rank)), (rank + 1) % size),
           dist.P2POp(dist.irecv, taken, (rank - 1) % size)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert torch.equal(taken, torch.full((5,), float((rank - 1) % size)))


def case_of_another_size():
    rank = dist.get_rank()
    if dist.get_world_size() == 1 or rank > 1:
        return
    if rank == 0:
        expect_error(RuntimeError, r"rank 0 sends 2 float32 \(8 bytes\) to rank 1, which receives 3 float32 \(12 bytes\)", dist.send, torch.ones(2), 1)
    else:
        expect_error(RuntimeError, r"rank 0 sends 2 float32 \(8 bytes\) to rank 1, which receives 3 float32 \(12 bytes\)", dist.recv, torch.ones(3), 0)


def case_monitored_barrier():
    rank, size = dist.get_rank(), dist.get_world_size()
    rueda.distributed.monitored_barrier()
    if size == 1:
        return
    rueda.distributed.monitored_barrier(dist.new_group([0]))  # the others are not in it
    short = timedelta(seconds=0.5)
    if rank == 0:
        expect_error(RuntimeError, f"Rank {size - 1} failed to pass monitoredBarrier in 0.5 s",
                     rueda.distributed.monitored_barrier, timeout=short)
    elif rank < size - 1:
        expect_error(RuntimeError, f"Rank {rank} successfully reached monitoredBarrier", rueda.distributed.monitored_barrier, timeout=short)


def case_made_again_from_nothing():
    """All groups are destroyed, and the first one is made again."""
    rank, size = dist.get_rank(), dist.get_world_size()
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder)
    for i in range(50):
        dist.destroy_process_group()
        dist.init_process_group("rueda", f"file://{folder[0]}/{i}", timedelta(seconds=60), size, rank)
        total = torch.ones(2)
        dist.all_reduce(total)
        assert total[0] == dist.get_world_size()
    if rank == 0:
        shutil.rmtree(folder[0])  # PyTorch 2 leaves some of its files there


def case_made_again_from_the_environment():
    """Rank 0's process once took its store with it while the others found it still there; and what groups had left in a store that
    stays, as torchrun's does, was taken for the next ones'."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for i in range(8):
        dist.destroy_process_group()
        dist.init_process_group("rueda", timeout=timedelta(seconds=60))
        total = torch.ones(2)
        dist.all_reduce(total)
        assert total[0] == size
        ranks = [j for j in range(size) if size == 1 or j != i % size]  # make groups of one name with other members
        for backend in ("rueda", "gloo"):
            group = dist.new_group(ranks, backend=backend)
            if rank in ranks:
                dist.all_reduce(total, group=group)
        assert total[0] == (size * len(ranks) ** 2 if rank in ranks else size), total


def case_of_a_world_of_another_size():
    """The ranks of a job that ruedarun has started stay, and the error says so. The next one, of the right size, is made."""
    rank, size = dist.get_rank(), dist.get_world_size()
    if size == 1 or "RUEDA_JOB_ID" not in os.environ:
        return
    dist.destroy_process_group()
    expect_error(RuntimeError, f"was told rank 0 of 1, but this process is rank {rank} of {size} of Rueda's job, whose ranks stay as they "
                 "are: .* give new_group the ranks", dist.init_process_group, "rueda", rank=0, world_size=1, store=dist.HashStore())
    dist.init_process_group("rueda", timeout=timedelta(seconds=60))
