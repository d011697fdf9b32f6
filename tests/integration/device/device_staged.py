"""Holds scenarios of device_rank.py: what differs where the GPU worker cannot open device memory, and what must not."""

import time
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_uint64, c_void_p

import numpy as np
import rueda
from device_support import (LIBRARY, SUM, DeviceError, Gate, Pinned, allreduce_async, broadcast_async, check,
                            grouped_async, is_done, stats, tensor, wait, wait_on)
from device_tools import COUNT, Buffer, address_of, expect, say, size_of


def forgotten(gpu):
    """Frees memory while it is in flight, which is an error that names the tensor; and as soon as a stream has the result, which
    is no error."""
    stream, gate = gpu.stream(), Gate(gpu)
    for step in range(50):
        buffer = Buffer(gpu, np.full(COUNT, step, np.float32))
        gate.stop(stream)
        handle = allreduce_async("forgotten", buffer.at, buffer.at, [COUNT], "float32", SUM, stream)
        try:
            check(LIBRARY.rueda_device_forget(c_void_p(buffer.at)))
            expect(False, "it is in flight")
        except DeviceError as error:
            expect(error.code == -1 and 'tensor "forgotten"' in str(error), f"{error.code} {error}")
        wait_on(stream, handle)
        gate.open()
        gpu.synchronize(stream)
        expect((buffer.get() == step * rueda.size()).all(), f"step {step}")
        check(LIBRARY.rueda_device_forget(c_void_p(buffer.at)))
        gpu.free(buffer.base)
        wait(handle)
    say("ok forgotten")


def unasked(gpu):
    """Frees memory to which a result that nobody has asked for is yet to come."""
    buffer = Buffer(gpu, np.ones(COUNT, np.float32))
    handle = allreduce_async("unasked", buffer.at, buffer.at, [COUNT], "float32")
    while not is_done(handle):
        time.sleep(0)
    try:
        check(LIBRARY.rueda_device_forget(c_void_p(buffer.at)))
        expect(False, "its result is yet to come")
    except DeviceError as error:
        expect(error.code == -1 and 'tensor "unasked"' in str(error), f"{error.code} {error}")
    wait(handle)
    check(LIBRARY.rueda_device_forget(c_void_p(buffer.at)))
    expect((buffer.get() == rueda.size()).all(), "the result")
    say("ok unasked")


def two_groups(gpu):
    """Lets two threads submit groups, each of which has room, and which together have none."""
    size = 150_000
    buffers = [[Buffer(gpu, np.full(size, number + rueda.rank(), np.int32)) for number in range(4)] for _ in range(2)]

    def submit(which):
        for step in range(10):
            parts = [tensor(f"{which}.{i}", b.at, b.at, [size], "int32") for i, b in enumerate(buffers[which])]
            for number, buffer in enumerate(buffers[which]):
                gpu.write(buffer.at, np.full(size, number + step + rueda.rank(), np.int32))
            wait(grouped_async(f"group.{which}", parts))
            ranks = sum(range(rueda.size()))
            for number, buffer in enumerate(buffers[which]):
                wanted = (number + step) * rueda.size() + ranks
                expect((buffer.get() == wanted).all(), f"{which}.{number} in step {step}: {buffer.get()[:4]}")

    with ThreadPoolExecutor(2) as threads:
        for future in [threads.submit(submit, which) for which in range(2)]:
            future.result()
    say("ok two_groups")


def unwaited(gpu):
    """Has more in flight than there is host memory for; the first results are asked for at the end."""
    size = 200_000
    buffers = [Buffer(gpu, np.full(size, number + rueda.rank(), np.int32)) for number in range(20)]
    handles = [allreduce_async(f"unwaited.{number}", buffer.at, buffer.at, [size], "int32")
               for number, buffer in enumerate(buffers)]
    ranks = sum(range(rueda.size()))
    stream = gpu.stream()
    got = Pinned(gpu, size, np.int32)
    for number, (handle, buffer) in enumerate(zip(handles, buffers)):
        if number % 2 == 0:
            while not is_done(handle):
                time.sleep(0)
        else:  # the stream has it, and the host looks at what the stream copied
            wait_on(stream, handle)
            gpu("cuMemcpyDtoHAsync_v2", got.at, c_uint64(buffer.at), size_of(got), stream)
            gpu.synchronize(stream)
            expect((got.array == number * rueda.size() + ranks).all(), f"{number} on the stream")
        wait(handle)
        expect((buffer.get() == number * rueda.size() + ranks).all(), f"{number}: {buffer.get()[:4]}")
    say("ok unwaited")


def two_streams(gpu):
    """Lets two streams wait for one result; what the first makes of it, the second does not undo."""
    first, second, gate = gpu.stream(), gpu.stream(), Gate(gpu)
    buffer, zeros = Buffer(gpu, np.ones(COUNT, np.float32)), Buffer(gpu, np.zeros(COUNT, np.float32))
    for step in range(20):
        gpu.write(buffer.at, np.full(COUNT, step, np.float32))
        handle = allreduce_async("twice", buffer.at, buffer.at, [COUNT], "float32", SUM, first)
        wait_on(first, handle)
        gate.stop(second)
        wait_on(second, handle)
        gpu("cuMemcpyDtoDAsync_v2", address_of(buffer), address_of(zeros), c_uint64(4 * COUNT // 2), first)
        gpu.synchronize(first)
        gate.open()
        gpu.synchronize(second)
        got = buffer.get()
        expect((got[:COUNT // 2] == 0).all() and (got[COUNT // 2:] == step * rueda.size()).all(), f"step {step}: {got}")
        wait(handle)
        expect((buffer.get() == got).all(), f"step {step}: the host's wait has undone what the stream did")
    say("ok two_streams")


def beyond_staging(gpu):
    """Reduces a tensor, and a group, for which there is not enough host memory; then a tensor for which there is enough."""
    large = Buffer(gpu, np.zeros(2 << 20, np.uint8))
    parts = [tensor(f"part.{i}", large.at + (i << 18), large.at + (i << 18), [1 << 18], "uint8") for i in range(8)]
    for name, submit in (("large", lambda: allreduce_async("large", large.at, large.at, [2 << 20], "uint8")),
                         ("group", lambda: grouped_async("parts", parts))):
        try:
            submit()
            expect(False, "there is no room")
        except DeviceError as error:
            say(f"error {name} {error.code} {error}")
    wait(allreduce_async("small", large.at, large.at, [1 << 18], "uint8"))
    wait(broadcast_async("root", large.at, large.at, [1 << 18], "uint8", 0))
    say("ok beyond_staging")


def counted(gpu):
    """Returns how many submissions were staged."""
    buffer = Buffer(gpu, np.ones(COUNT, np.float32))
    other = Buffer(gpu, np.ones(COUNT, np.float32), by_descriptor=True)
    before = stats()
    wait(allreduce_async("plain", buffer.at, buffer.at, [COUNT], "float32"))
    wait(allreduce_async("mixed", other.at, buffer.at, [COUNT], "float32"))
    wait(allreduce_async("other", other.at, other.at, [COUNT], "float32"))
    after = stats()
    expect(after.submissions - before.submissions == 3, "three submissions")
    say(f"staged {after.staged_submissions - before.staged_submissions}")
    say("counted")
    time.sleep(1000)
