"""Runs a rank that asks for each collective of the Python package in which ranks have parts of their own."""

import sys
import threading

import numpy as np
import rueda

ROUNDS = 5  # the second may find a lock


def expect(condition, what):
    if not condition:
        sys.exit(f"rank {rueda.rank()}: {what}")


def even_rows(rank, size, rows):
    return rows // size + (1 if rank < rows % size else 0)


def given(rank):
    return np.arange((rank + 1) * 3, dtype=np.float32).reshape(rank + 1, 3) + 100 * rank


def gather_all(rank, size):
    wanted = np.concatenate([given(other) for other in range(size)])
    expect((rueda.allgather(given(rank), name="allgather") == wanted).all(), "allgather")
    gathered = rueda.gather(given(rank), root_rank=1, name="gather")
    expect((gathered == wanted).all() if rank == 1 else gathered is None, "gather")
    # The columns are not contiguous, and there are none on some ranks.
    columns = np.asfortranarray(given(rank))[:rank % 2]
    wanted = np.concatenate([given(other)[:other % 2] for other in range(size)])
    expect((rueda.allgather(columns, name="columns") == wanted).all(), "columns")


def reduce_all(rank, size):
    rows = 2 * size + 1
    powers = np.full((rows, 4), 2.0 ** rank)
    part = rueda.reducescatter(powers, op=rueda.Sum, name="reducescatter")
    expect(part.shape == (even_rows(rank, size, rows), 4) and (part == 2 ** size - 1).all(), "reducescatter")
    total = rueda.reduce(powers, root_rank=0, op=rueda.Sum, name="reduce")
    expect((total == 2 ** size - 1).all() if rank == 0 else total is None, "reduce")
    # 2^size - 1 and 257 have 8 bits and 9; bfloat16, which the nodes exchange, holds the former exactly.
    for wire_dtype, added, wanted in ((None, 1, 257), ("bfloat16", 0, 2 ** size - 1), ("bfloat16", 1, 256)):
        tensor = np.full(1000, 257 / size if added else 2.0 ** rank, np.float32)
        result = rueda.allreduce(tensor, op=rueda.Sum, name=f"wire.{wire_dtype}.{added}", wire_dtype=wire_dtype)
        expect((result == wanted).all(), f"wire_dtype={wire_dtype}: {result[0]}")
    part = rueda.reducescatter(powers.astype(np.float32), op=rueda.Sum, name="wire.part", wire_dtype="float16")
    expect((part == 2 ** size - 1).all(), "reducescatter with a wire dtype")
    source = np.arange(rows, dtype=np.uint8) if rank == size - 1 else np.zeros(rows, np.uint8)
    scattered = rueda.scatter(source, root_rank=size - 1, name="scatter")
    begin = sum(even_rows(other, size, rows) for other in range(rank))
    expect((scattered == np.arange(begin, begin + len(scattered))).all(), "scatter")


def reduce_dtypes(rank, size):
    for kind in (np.int16, np.uint16, np.uint32, np.uint64, np.complex64, np.complex128):
        is_complex = np.issubdtype(kind, np.complexfloating)
        rows = np.array([(np.arange(5) + 3 * other) * (1 + 2j if is_complex else 1) for other in range(size)]).astype(kind)
        total = rows.sum(axis=0, dtype=kind)
        wanted = {rueda.Sum: total, rueda.Average: total / size if is_complex else total // size,
                  rueda.Product: rows.prod(axis=0, dtype=kind)}
        if not is_complex:
            wanted.update({rueda.Min: rows.min(axis=0), rueda.Max: rows.max(axis=0)})
        for op in rueda.ReduceOp:
            name = f"{np.dtype(kind)}.{op.name}"
            if op in wanted:
                result = rueda.allreduce(rows[rank], op=op, name=name)
                expect(result.dtype == kind and (result == wanted[op].astype(kind)).all(), f"{name}: {result}")
                continue
            try:
                rueda.allreduce(rows[rank], op=op, name=name)
            except rueda.RuedaError as error:
                expect(str(np.dtype(kind)) in str(error), str(error))
            else:
                expect(False, f"{name} was not refused")


def exchange(rank, size):
    def sent(source, target):
        return np.full(((source + target) % 3, 2), 10 * source + target, np.int32)

    tensor = np.concatenate([sent(rank, target) for target in range(size)])
    splits = [len(sent(rank, target)) for target in range(size)]
    output, received = rueda.alltoall(tensor, splits, name="alltoall")
    expect((output == np.concatenate([sent(source, rank) for source in range(size)])).all(), "alltoall")
    expect(received.tolist() == [len(sent(source, rank)) for source in range(size)], "received splits")
    output = rueda.alltoall(np.arange(2 * size) + 100 * rank, name="even")
    expect((output == np.concatenate([[2 * rank + 100 * s, 2 * rank + 1 + 100 * s] for s in range(size)])).all(),
           "even alltoall")


def wait_in_different_orders(rank, size):
    """Each rank needs what the other does first, and neither waits for what the other waits for."""
    large = np.full(200_000 + 1000 * rank, rank, np.float32)
    handles = [rueda.allgather_async(large, name=f"large{i}") for i in range(2)]
    for handle in handles if rank % 2 else reversed(handles):
        while rank == 0 and not rueda.poll(handle):
            pass
        result = rueda.synchronize(handle)
        expect(len(result) == sum(200_000 + 1000 * r for r in range(size)) and result[-1] == size - 1, "order")


def threads_begin_what_others_wait_for(rank, size):
    """Each thread begins whatever knows its sizes, also while another one looks at it."""
    failures = []

    def work(thread):
        try:
            for i in range(120):
                handle = rueda.allgather_async(np.full(rank + 1, i), name=f"thread{thread}")
                while i % 2 and not rueda.poll(handle):
                    pass
                if len(rueda.synchronize(handle)) != size * (size + 1) // 2:
                    failures.append(f"thread {thread}: wrong length")
        except (rueda.RuedaError, ValueError) as error:
            failures.append(f"thread {thread}: {error}")

    workers = [threading.Thread(target=work, args=(thread,)) for thread in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    expect(not failures, failures)


def share_objects(rank, size, sets):
    def told(other):
        return {"from": other, "text": "ä" * 1000 * other, "values": np.arange(other), "function": min}

    def same(found, other):
        return (found["from"], found["text"], found["function"], found["values"].tolist()) == (
            other, "ä" * 1000 * other, min, list(range(other)))

    for root in range(size):
        mine = told(rank)
        found = rueda.broadcast_object(mine, root_rank=root, name=None if root % 2 else f"object{root}")
        expect(same(found, root) and (found is mine) == (rank == root), f"broadcast_object from {root}: {found}")
    gathered = rueda.allgather_object(told(rank))
    expect(len(gathered) == size and all(same(found, other) for other, found in enumerate(gathered)), "allgather_object")
    expect(rueda.allgather_object(None, "nothing") == [None] * size, "allgather_object of nothing")
    expect(rueda.broadcast_object(None) is None, "broadcast_object of nothing")
    mine = next(one for one in sets if rank in one.ranks)
    expect(rueda.allgather_object(rank, process_set=mine) == mine.ranks, "allgather_object in a set")
    expect(rueda.broadcast_object([rank], mine.ranks[-1], "in a set", mine) == [mine.ranks[-1]], "broadcast_object in a set")
    for wrong, error in ((size, ValueError), (0.5, TypeError)):
        try:
            rueda.broadcast_object(rank, wrong)
        except error:
            continue
        expect(False, f"a broadcast_object from {wrong} was not refused")


def disagree(rank):
    try:
        rueda.allgather(np.zeros((2, 3 + rank % 2), np.float32), name="columns that differ")
    except rueda.RuedaError as error:
        expect("shape is [" in str(error) and "columns that differ" in str(error), str(error))
    else:
        expect(False, "ranks that disagree were not told so")


def main():
    rueda.init()
    rank, size = rueda.rank(), rueda.size()
    for _ in range(ROUNDS):
        gather_all(rank, size)
        reduce_all(rank, size)
        reduce_dtypes(rank, size)
        exchange(rank, size)
        wait_in_different_orders(rank, size)
    sets = [rueda.add_process_set(range(0, size, 2)), rueda.add_process_set(range(1, size, 2))]
    share_objects(rank, size, sets)
    threads_begin_what_others_wait_for(rank, size)
    disagree(rank)
    expect((rueda.allreduce(np.full(3, 2.0 ** rank), name="after", op=rueda.Sum) == 2 ** size - 1).all(), "after")
    rueda.shutdown()
    print("ok", flush=True)


if __name__ == "__main__":
    main()
