"""A rank that makes collectives, and then at least CALLS more, and says what those have cost: unnamed_rank.py HOW CALLS NAMES
PID..., where NAMES is how many names come in turn (0: as many as there are), and the processes are the daemons that rank 0 looks at
besides."""

import os
import re
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np  # noqa: E402
import rueda  # noqa: E402
from rueda import _counted  # noqa: E402

ONES = np.ones(5, np.float32)


def arrays(number, pair):
    """Every function, several of a kind in flight, with handles that are waited for late."""
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
    """A name whose shape is never the same again, as that of batches of text is; nothing needs to travel for it."""
    rueda.allreduce(np.empty((0, number), np.float32), name="text")
    return 1


def in_flight(_, __):
    """More at a time than there are names: they come again when the first have ended."""
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


# So often for each name, before it counts.
WARM = {arrays: 2.5, in_flight: 0.015, tensors: 2.5, shapes: 100}


def own_kib(process):
    with open(f"/proc/{process}/status", encoding="utf-8") as file:
        return int(re.search(r"^RssAnon:\s+(\d+) kB$", file.read(), re.MULTILINE).group(1))


def main():
    how, calls, names, daemons = globals()[sys.argv[1]], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    _counted.MOST = names or _counted.MOST
    rueda.init()
    pair = rueda.add_process_set([0, 1])
    watched = [os.getpid(), *(daemons if rueda.rank() == 0 else [])]
    for number in range(1, 2 + int(WARM[how] * _counted.MOST)):
        how(number, pair)
    rueda.barrier()
    before = [own_kib(process) for process in watched]
    made = 0
    while made < calls:
        number += 1
        made += how(number, pair)
    rueda.barrier()
    for process, first, second in zip(watched, before, map(own_kib, watched)):
        print(f"process {process} has {second - first} KiB more after {made} calls", flush=True)
    rueda.shutdown()


if __name__ == "__main__":
    main()
