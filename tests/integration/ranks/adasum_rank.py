#!/usr/bin/python3
"""Runs a rank that checks Adasum against its paper's formula in float64, and says one line with a hash of all results. Ranks are
told how many each node has, because those of a node meet first."""

import hashlib
import sys

import numpy as np
import rueda

RANKS_OF_NODES = [int(count) for count in sys.argv[1].split(",")]
PRECISION = {"float16": 2.0**-10, "float32": 2.0**-20, "float64": 2.0**-48}
SIZES = (1, 17, 1000, 0, 70_001)

seen = hashlib.sha256()


def adasum(row):
    """Combines a row of vectors, which is halved again and again; the first half has one more if the number is odd."""
    if len(row) == 1:
        return row[0]
    middle = (len(row) + 1) // 2
    a, b = adasum(row[:middle]), adasum(row[middle:])
    if not a.any() or not b.any():
        return a + b
    return (1 - a @ b / (2 * a @ a)) * a + (1 - a @ b / (2 * b @ b)) * b


def contribution(rank, elements, dtype, seed):
    """Returns a vector that has something in common with those of the others, and a length of its own."""
    common = np.random.default_rng(seed).standard_normal(elements)
    own = np.random.default_rng((seed, rank + 1)).standard_normal(elements)
    return ((rank + 1) * (common + own) / 4).astype(dtype)


def expected(elements, dtype, seed, ranks):
    """Returns the result of these ranks, node by node."""
    groups, first = [], 0
    for count in RANKS_OF_NODES:
        on_node = [rank for rank in range(first, first + count) if rank in ranks]
        first += count
        if on_node:
            groups.append(adasum([contribution(rank, elements, dtype, seed).astype(np.float64) for rank in on_node]))
    return adasum(groups)


def check(result, want, precision):
    bound = 8 * precision * max(1.0, np.abs(want).max(initial=0.0))
    worst = np.abs(result.astype(np.float64) - want).max(initial=0.0)
    assert result.shape == want.shape and worst <= bound, (result.dtype, result.shape, worst, bound)
    seen.update(result.tobytes())


def all_types_and_sizes():
    ranks = range(rueda.size())
    for dtype, precision in PRECISION.items():
        for seed, elements in enumerate(SIZES):
            given = contribution(rueda.rank(), elements, dtype, seed)
            kept = given.copy()
            want = expected(elements, dtype, seed, ranks)
            check(rueda.allreduce(given, name=f"{dtype}.{seed}", op=rueda.Adasum), want, precision)
            assert np.array_equal(given, kept)
            rueda.allreduce_(given, name=f"{dtype}.{seed}.there", op=rueda.Adasum, prescale_factor=0.5,
                             postscale_factor=-4.0)
            check(given, -2 * want, precision)


def tensor_by_tensor():
    """Checks that each tensor has its own directions, fused or in a group, and also rounded where it crosses the network."""
    ranks = range(rueda.size())
    wants = [expected(elements, "float32", seed, ranks) for seed, elements in enumerate(SIZES)]
    for step in range(6):
        given = [contribution(rueda.rank(), elements, "float32", seed) for seed, elements in enumerate(SIZES)]
        handles = [rueda.allreduce_async(one, name=f"fused.{i}", op=rueda.Adasum) for i, one in enumerate(given)]
        for handle, want in zip(handles, wants):
            check(rueda.synchronize(handle), want, PRECISION["float32"])
        for one, want in zip(rueda.grouped_allreduce(given, name="group", op=rueda.Adasum), wants):
            check(one, want, PRECISION["float32"])
    rounded = rueda.allreduce(given[2], name="rounded", op=rueda.Adasum, wire_dtype="float16")
    check(rounded, wants[2], 2.0**-9)


def in_a_process_set():
    if rueda.size() == 1:
        return
    chosen = list(range(0, rueda.size(), 2))
    own = rueda.add_process_set(chosen)
    if rueda.rank() in chosen:
        given = contribution(rueda.rank(), 1000, "float32", 3)
        result = rueda.allreduce(given, name="in a set", op=rueda.Adasum, process_set=own)
        want = expected(1000, "float32", 3, chosen)
        assert np.abs(result - want).max() < 1e-4
    rueda.remove_process_set(own)


def while_others_have_joined():
    """Checks that when the last rank alone has data, it gets what it gives."""
    last = rueda.size() - 1
    if rueda.rank() == last:
        for step in range(3):
            given = contribution(last, 50_000, "float32", step)
            result = rueda.allreduce(given, name=f"alone.{step}", op=rueda.Adasum)
            check(result, given.astype(np.float64), PRECISION["float32"])
    rueda.join()


def what_is_refused():
    for dtype in ("int32", "bool"):
        try:
            rueda.allreduce(np.ones(2, dtype), op=rueda.Adasum)
        except rueda.RuedaError as error:
            assert "Adasum" in str(error) and dtype in str(error), error
        else:
            raise AssertionError(dtype)
    try:
        rueda.reducescatter(np.ones(8, np.float32), op=rueda.Adasum)
    except rueda.RuedaError as error:
        assert "only an allreduce" in str(error), error
    else:
        raise AssertionError("reducescatter")


rueda.init()
what_is_refused()
all_types_and_sizes()
tensor_by_tensor()
RESULTS = seen.hexdigest()
in_a_process_set()
while_others_have_joined()
print(f"ok {RESULTS}", flush=True)
rueda.shutdown()
