"""Runs a rank that makes collectives, and then at least CALLS more, and says what those have cost.

unnamed_rank.py HOW CALLS NAMES PID...

NAMES is how many names come in turn (0: as many as there are), and the processes are the daemons that rank 0 looks at besides."""

import os
import re
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np  # noqa: E402
import rueda  # noqa: E402
from rueda._core import _counted  # noqa: E402

ONES = np.ones(5, np.float32)


def arrays(number, pair):
    """Calls every function, with several of a kind in flight, and with handles that are waited for late."""
    size = rueda.size()
    handles = [rueda.allreduce_async(ONES, op=rueda.Sum) for _ in range(3)]
    handles += [rueda.broadcast_async(ONES, 0), rueda.reducescatter_async(ONES), rueda.reduce_async(ONES, 0),
                rueda.scatter_async(ONES, 0), rueda.allgather_async(ONES[:1 + number % 3]), rueda.gather_async(ONES, 1),
                rueda.alltoall_async(ONES[:size]), rueda.grouped_allreduce_async([ONES, ONES]),
                rueda.grouped_allgather_async([ONES, ONES])]
    if pair.included():
        handles.append(rueda.allreduce_async(ONES, process_set=pair))
    results = [rueda.synchronize(handle) for handle in handles]
    rueda.barrier()
    assert (results[0] == size).all() and (results[2] == size).all(), results
    return 14


def shapes(number, _):
    """Uses a name whose shape is never the same again, as that of batches of text is; nothing needs to travel for it."""
    rueda.allreduce(np.empty((0, number), np.float32), name="text")
    return 1


def in_flight(_, __):
    """Has more calls in flight than there are names, which come again when the first have ended."""
    handles = [rueda.allreduce_async(ONES, op=rueda.Sum) for _ in range(1500)]
    for handle in handles:
        assert (rueda.synchronize(handle) == rueda.size()).all()
    return len(handles)


def tensors(number, _):
    import rueda.torch as hvd
    import torch
    ones = torch.ones(6)
    handles = [hvd.allreduce_async(ones), hvd.allgather_async(ones[:1 + number % 3]), hvd.alltoall_async(ones[:hvd.size()]),
               hvd.grouped_allreduce_async([ones, ones]), hvd.broadcast_async_(torch.ones(3), 0), hvd.reducescatter_async(ones),
               hvd.sparse_allreduce_async(torch.eye(2).to_sparse(), None, hvd.Sum)]
    for handle in handles:
        hvd.synchronize(handle)
    hvd.allgather(ones.requires_grad_()).sum().backward()
    return len(handles) + 4


def groups(number, pair):
    """Does what torch.distributed has, of which no call has a name: many in flight, of groups that stay and of one that comes and
    goes, messages from rank to rank, futures, objects, what is refused, and init_process_group again."""
    import torch
    import torch.distributed as dist
    from rueda.distributed import _start
    if number == 1 or number % 20 == 0:
        if _counted.MOST < 1000:
            _start._ALIKE = 2  # makes names come again soon
        if dist.is_initialized():
            dist.destroy_process_group()
        dist.init_process_group("rueda")
    size, rank = dist.get_world_size(), dist.get_rank()
    ones, many = torch.ones(6), torch.ones(6 * size)
    works = [dist.all_reduce(torch.ones(5), async_op=True) for _ in range(40)]
    works += [dist.broadcast(torch.ones(1 + number % 7), 0, async_op=True), dist.reduce(torch.ones(3), 1, async_op=True),
              dist.all_gather([torch.ones(6) for _ in range(size)], ones, async_op=True),
              dist.reduce_scatter(torch.ones(6), list(many.split(6)), async_op=True),
              dist.all_to_all_single(torch.ones(6 * size), many, async_op=True),
              dist.gather(ones, [torch.ones(6) for _ in range(size)] if rank == 0 else None, async_op=True),
              dist.scatter(torch.ones(6), list(many.split(6)) if rank == 0 else None, async_op=True),
              dist.barrier(async_op=True)]
    future = dist.all_reduce(ones, async_op=True).get_future().then(lambda done: done.value()[0] + 1)
    works += [dist.isend(torch.ones(4), (rank + 1) % size), dist.irecv(torch.ones(4), (rank - 1) % size)]
    for work in works:
        work.wait()
    future.wait()
    assert ones[0] == size, ones
    dist.all_to_all_single(torch.ones(6 * size), many, [6] * size, [6] * size)
    dist.all_reduce(torch.ones(3, dtype=torch.int32), dist.ReduceOp.BXOR)
    dist.all_gather_object([None] * size, number)
    if number % 10 == 0:
        group = dist.new_group([0, 1])
        if rank < 2:
            dist.all_reduce(torch.ones(3), group=group)
            dist.destroy_process_group(group)
        try:
            dist.all_reduce(torch.ones(3 + rank))
        except RuntimeError:
            pass
    return len(works) + 9


# The number of calls of each name before the costs count.
WARM = {arrays: 2.5, in_flight: 0.015, tensors: 2.5, shapes: 100, groups: 2.5}


def costs_of(process):
    """Returns what a process has: KiB of its own memory, threads, file descriptors."""
    with open(f"/proc/{process}/status", encoding="utf-8") as file:
        status = file.read()
    return [*(int(re.search(rf"^{what}:\s+(\d+)", status, re.MULTILINE).group(1)) for what in ("RssAnon", "Threads")),
            len(os.listdir(f"/proc/{process}/fd"))]


def main():
    how, calls, names, daemons = globals()[sys.argv[1]], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    _counted.MOST = names or _counted.MOST
    rueda.init()
    pair = rueda.add_process_set([0, 1])
    watched = [os.getpid(), *(daemons if rueda.rank() == 0 else [])]
    for number in range(1, 2 + int(WARM[how] * _counted.MOST)):
        how(number, pair)
    rueda.barrier()
    before = [costs_of(process) for process in watched]
    made = 0
    while made < calls:
        number += 1
        made += how(number, pair)
    rueda.barrier()
    for process, first, second in zip(watched, before, map(costs_of, watched)):
        kib, threads, descriptors = (now - then for then, now in zip(first, second))
        print(f"process {process} has {kib} KiB, {threads} threads and {descriptors} descriptors more after {made} calls", flush=True)
    rueda.shutdown()


if __name__ == "__main__":
    main()
