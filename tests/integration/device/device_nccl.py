"""Holds scenarios of device_rank.py for tensors that NCCL carries between nodes."""

import ctypes
import itertools
import sys
import time
from ctypes import byref, c_uint64

import numpy as np
import rueda
from device_support import (AVERAGE, LIBRARY, NO_STREAM, SUM, DeviceError, Gate, ReduceOptions, allreduce_async,
                            broadcast_async, check, grouped_async, tensor, wait)
from device_tools import COUNT, Buffer, expect, say


def _reduce_in(process_set, name, buffer, dtype="float32", operator=SUM, wire_dtype=0, scales=(1.0, 1.0)):
    handle, what = c_uint64(), tensor(name, buffer.at, buffer.at, [buffer.like.size], dtype)
    what.process_set = process_set
    how = ReduceOptions(ctypes.sizeof(ReduceOptions), operator, *scales, 0, wire_dtype)
    check(LIBRARY.rueda_device_allreduce_async(byref(what), byref(how), NO_STREAM, byref(handle)))
    return handle.value


def rounded(gpu):
    """Shows that what crosses the network is rounded: small integers are not, and fractions of a node's sum are."""
    for wire in (1, 2):
        buffer = Buffer(gpu, np.full(COUNT, rueda.rank() + 1, np.float32))
        wait(_reduce_in(0, f"rounded.{wire}", buffer, operator=AVERAGE, wire_dtype=wire, scales=(2.0, 8.0)))
        wanted = 16 * sum(range(1, rueda.size() + 1)) / rueda.size()
        expect((buffer.get() == np.float32(wanted)).all(), f"wire dtype {wire}: {buffer.get()[:4]} instead of {wanted}")
    buffer = Buffer(gpu, np.full(COUNT, 1 + 2.0 ** -12, np.float32))
    wait(_reduce_in(0, "rounded.off", buffer, wire_dtype=2))
    expect((buffer.get() == rueda.size()).all(), f"bfloat16 has no room for that: {buffer.get()[:4]}")
    say("ok rounded")


def grouped_beside_a_lock(gpu):
    """Reduces groups in device memory whose members come one by one, while a schedule of host memory is locked and left."""
    buffers = [Buffer(gpu, np.zeros(COUNT, np.float32)) for _ in range(3)]
    for step in range(24):
        for buffer in buffers:
            gpu.write(buffer.at, np.full(COUNT, step, np.float32))
        # Each rank has host memory between, before or behind the group.
        names = ["host.0", "host.1"] if step % 8 < 6 else ["host.0", f"host.other.{step}"]
        handles = [rueda.allreduce_async(np.full(9, step, np.float32), op=rueda.Sum, name=name) for name in names[:1]]
        group = grouped_async("members", [tensor(f"member.{i}", buffer.at, buffer.at, [COUNT], "float32")
                                          for i, buffer in enumerate(buffers)])
        handles += [rueda.allreduce_async(np.full(9, step, np.float32), op=rueda.Sum, name=name) for name in names[1:]]
        for handle in handles:
            expect((rueda.synchronize(handle) == step * rueda.size()).all(), f"host memory in step {step}")
        wait(group)
        for i, buffer in enumerate(buffers):
            expect((buffer.get() == step * rueda.size()).all(), f"member {i} in step {step}: {buffer.get()[:4]}")
    say("ok grouped_beside_a_lock")


def sets(gpu):
    """Uses sets of several nodes and of one, at once; some of them are removed and others added in their place."""
    size = rueda.size()
    for turn in range(3):
        # The last set but one has no rank on the first node, which coordinates all sets.
        added = [rueda.add_process_set(ranks)
                 for ranks in ([0, size - 1], list(range(1, size)), [size - 2, size - 1], [0, 1])]
        for step in range(4):
            handles = []
            for process_set in added:
                if rueda.rank() not in process_set.ranks:
                    continue
                number = process_set.process_set_id
                buffer = Buffer(gpu, np.full(COUNT, rueda.rank() + step, np.float32))
                handles.append((process_set, buffer, _reduce_in(number, f"in.{number}", buffer)))
            whole = Buffer(gpu, np.full(COUNT, step, np.float32))
            handles.append((None, whole, allreduce_async("all", whole.at, whole.at, [COUNT], "float32")))
            for process_set, buffer, handle in handles:
                wait(handle)
                wanted = step * size if process_set is None else sum(rank + step for rank in process_set.ranks)
                expect((buffer.get() == wanted).all(), f"{process_set} in step {step}: {buffer.get()[:4]}, not {wanted}")
        # A broadcast's root is given by its rank in the job, and is a member by its place in the set.
        last = added[1]
        if rueda.rank() in last.ranks:
            what = Buffer(gpu, np.full(COUNT, rueda.rank(), np.float32))
            shaped, handle = tensor("from the last", what.at, what.at, [COUNT], "float32"), c_uint64()
            shaped.process_set = last.process_set_id
            check(LIBRARY.rueda_device_broadcast_async(byref(shaped), size - 1, NO_STREAM, byref(handle)))
            wait(handle.value)
            expect((what.get() == size - 1).all(), f"a broadcast in turn {turn}: {what.get()[:4]}")
        for process_set in added:
            rueda.remove_process_set(process_set)
    say("ok sets")


def too_many_sets(gpu):
    """Uses nine sets of two nodes, and that of all ranks."""
    buffer = Buffer(gpu, np.ones(COUNT, np.float32))
    wait(allreduce_async("all", buffer.at, buffer.at, [COUNT], "float32"))
    across = [list(ranks) for length in (2, 3) for ranks in itertools.combinations(range(4), length)
              if ranks not in ((0, 1), (2, 3))]
    try:
        for process_set in [rueda.add_process_set(ranks) for ranks in across]:
            if rueda.rank() in process_set.ranks:
                wait(_reduce_in(process_set.process_set_id, f"in.{process_set.process_set_id}", buffer))
        wait(allreduce_async("at last", buffer.at, buffer.at, [COUNT], "float32"))
    except DeviceError as error:
        say(f"error {error.code} {error}")
    sys.exit(3)


def joined(gpu):
    """Shows that, when rank 1 has no more data, a tensor for NCCL is an error, and not the end of the job."""
    buffer = Buffer(gpu, np.ones(COUNT, np.float32))
    wait(allreduce_async("before", buffer.at, buffer.at, [COUNT], "float32"))
    if rueda.rank() == 0:
        try:
            wait(allreduce_async("alone", buffer.at, buffer.at, [COUNT], "float32"))
            expect(False, "it was reduced without rank 1")
        except DeviceError as error:
            say(f"error {error.code} {error}")
        got = rueda.allreduce(np.ones(COUNT, np.float32), op=rueda.Sum, name="host")
        expect((got == 1).all(), "host memory goes on, with zeros of rank 1")
    rueda.join()
    wait(broadcast_async("after", buffer.at, buffer.at, [COUNT], "float32", 0))
    say("ok joined")


def one(gpu):
    """Reduces a single tensor, which fails."""
    buffer = Buffer(gpu, np.ones(COUNT, np.float32))
    try:
        wait(allreduce_async("one", buffer.at, buffer.at, [COUNT], "float32"))
    except DeviceError as error:
        say(f"error {error.code} {error}")
    sys.exit(3)


def late_stream(gpu):
    """Lets rank 1's stream come to its tensor after a while, in which nobody is lost."""
    stream, gate = gpu.stream(), Gate(gpu)
    buffer = Buffer(gpu, np.ones(COUNT, np.float32))
    if rueda.rank() == 1:
        gate.stop(stream)
    handle = allreduce_async("late", buffer.at, buffer.at, [COUNT], "float32", SUM, stream)
    time.sleep(2.5)
    if rueda.rank() == 1:
        gate.open()
    wait(handle)
    expect((buffer.get() == rueda.size()).all(), f"late: {buffer.get()[:4]}")
    say("ok late_stream")
