"""Holds scenarios of device_rank.py: tensors that lie across several allocations."""

import time
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_uint64, c_void_p

import numpy as np
import rueda
from device_support import (AVERAGE, LIBRARY, SUM, DeviceError, Pinned, allreduce_async, broadcast_async, check,
                            grouped_async, is_done, stats, tensor, wait, wait_on)
from device_tools import COUNT, Buffer, expect, nearly_same, same_bits, say, size_of, values


class Segment:
    """Holds allocations that lie one behind another in addresses that are reserved, as in PyTorch's expandable segments."""

    def __init__(self, gpu, pieces, mapped):
        self.gpu, self.piece = gpu, gpu.granularity()
        self.base = gpu.reserve(pieces * self.piece)
        for number in range(mapped):
            self.map(number)

    def at(self, number):
        return self.base + number * self.piece

    def map(self, number):
        self.gpu.map(self.at(number), self.piece)

    def unmap(self, number):
        self.gpu.unmap(self.at(number), self.piece)

    def across(self, first, count, dtype="float32"):
        """Returns address and elements of a tensor in so many allocations, from near the end of the first to shortly behind the
        beginning of the last."""
        size = np.dtype(dtype).itemsize
        return self.at(first + 1) - 10 * size, ((count - 2) * self.piece) // size + 10 + 20


def across(gpu):
    """Reduces tensors that lie in 2 and in 4 allocations."""
    segment, other = Segment(gpu, 5, 5), Segment(gpu, 5, 5)
    for step in range(3):
        for pieces in (2, 4):
            name = f"across.{step}.{pieces}"
            at, count = segment.across(1, pieces)
            given = values("float32", 10 * step + pieces, count)
            wanted = rueda.allreduce(given, op=rueda.Sum, name=f"host.{name}")
            gpu.write(at, given)
            wait(allreduce_async(name, at, at, [count], "float32"))
            expect(nearly_same(gpu.read(at, given), wanted), f"{name} in place")
            gpu.write(at, given)
            target, _ = other.across(0, pieces)
            plain = Buffer(gpu, given)
            wait(allreduce_async(name + ".out", at, target, [count], "float32"))
            wait(allreduce_async(name + ".mixed", plain.at, at, [count], "float32"))
            expect(nearly_same(gpu.read(target, given), wanted), f"{name} to another")
            expect(nearly_same(gpu.read(at, given), wanted), f"{name} from one allocation")
            gpu.free(plain.base)
            for root in range(rueda.size()):
                wanted = rueda.broadcast(given, root_rank=root, name=f"host.{name}.{root}")
                gpu.write(at, given)
                wait(broadcast_async(f"{name}.{root}", at, at, [count], "float32", root))
                expect(same_bits(gpu.read(at, given), wanted), f"{name} from rank {root}")
    say("ok across")


def across_large(gpu):
    """Uses so many allocations that each of several GPUs takes a part of them."""
    pieces = -(-(5 << 20) // (4 * gpu.granularity())) + 2
    segment, plain = Segment(gpu, pieces, pieces), None
    at, count = segment.across(0, pieces)
    for step in range(3):
        given = values("float32", 60 + step, count)
        wanted = rueda.allreduce(given, op=rueda.Sum, name=f"host.large.{step}")
        gpu.write(at, given)
        wait(allreduce_async(f"large.{step}", at, at, [count], "float32"))
        expect(nearly_same(gpu.read(at, given), wanted), f"large.{step} in place")
        gpu.write(at, given)
        plain = plain or Buffer(gpu, given)
        wait(allreduce_async(f"large.{step}.out", at, plain.at, [count], "float32"))
        expect(nearly_same(plain.get(), wanted), f"large.{step} to one allocation")
    say("ok across_large")


def across_known(gpu):
    """The daemon is told of each allocation, and of each run of them, once."""
    segment = Segment(gpu, 5, 5)
    runs = [segment.across(0, 2), segment.across(1, 3), segment.across(1, 2)]
    before = stats()
    for step in range(10):
        tensors = []
        for number, (at, count) in enumerate(runs[:2]):
            gpu.write(at, np.full(count, step, np.float32))
            tensors.append(tensor(f"known.{number}", at, at, [count], "float32"))
        wait(grouped_async("known", tensors, AVERAGE))
    at, count = runs[2]  # is another run, of allocations that are known
    wait(allreduce_async("shorter", at, at, [count], "float32"))
    known = stats()
    expect((known.cache_misses - before.cache_misses, known.allocations - before.allocations) == (3, 4),
           f"{known.cache_misses - before.cache_misses} misses, {known.allocations} known")
    expect(known.cache_hits - before.cache_hits == 2 * 2 * 10 - 2 + 1, f"{known.cache_hits} hits")
    say("ok across_known")


def across_again(gpu):
    """Frees an allocation amid a tensor, and makes another one at its addresses."""
    segment = Segment(gpu, 4, 4)
    at, count = segment.across(0, 4)
    before = stats()
    for step in range(6):
        given = np.full(count, step + rueda.rank(), np.int32)
        gpu.write(at, given)
        wait(allreduce_async("again", at, at, [count], "int32"))
        wanted = step * rueda.size() + sum(range(rueda.size()))
        expect((gpu.read(at, given) == wanted).all(), f"step {step}: {gpu.read(at, given)[:4]} instead of {wanted}")
        number = 1 + step % 3
        if step % 2 == 0:
            check(LIBRARY.rueda_device_forget(c_void_p(segment.at(number) + 8)))
        segment.unmap(number)
        segment.map(number)
    known = stats()
    expect((known.recycled_addresses - before.recycled_addresses, known.allocations - before.allocations) == (2, 4),
           f"{known.recycled_addresses} recycled, {known.allocations} known")
    say("ok across_again")


def across_streams(gpu):
    """Reduces tensors in the order of a stream, as a training step has them."""
    segment, stream = Segment(gpu, 4, 4), gpu.stream()
    at, count = segment.across(0, 4)
    given, got = Pinned(gpu, count, np.float32), Pinned(gpu, count, np.float32)
    for step in range(15):
        gpu.synchronize(stream)
        given.array[:] = step
        gpu("cuMemcpyHtoDAsync_v2", c_uint64(at), given.at, size_of(given), stream)
        handle = allreduce_async("streamed", at, at, [count], "float32", SUM, stream)
        wait_on(stream, handle)
        gpu("cuMemcpyDtoHAsync_v2", got.at, c_uint64(at), size_of(got), stream)
        gpu.synchronize(stream)
        wait(handle)
        expect((got.array == step * rueda.size()).all(), f"step {step}: {got.array[:4]}")
    say("ok across_streams")


def across_many(gpu):
    """Uses more runs of allocations than the daemon is told of at a time."""
    pieces = 1100
    segment = Segment(gpu, pieces, pieces)
    handles = []
    for turn in range(2):
        for first in range(pieces - 1):
            at, count = segment.across(first, 2)
            given = np.full(count, first + turn, np.int32)
            gpu.write(at, given)
            handles.append(allreduce_async("many", at, at, [count], "int32"))
            while not is_done(handles[-1]):
                time.sleep(0)
            expect((gpu.read(at, given) == (first + turn) * rueda.size()).all(), f"turn {turn}, run {first}")
    for handle in handles:
        wait(handle)
    say("ok across_many")


def without_context(gpu):
    """Hands over memory that belongs to no context, and memory that does, from a thread that has never used the GPU."""
    segment, plain = Segment(gpu, 2, 2), Buffer(gpu, np.ones(COUNT, np.float32))
    at, count = segment.across(0, 2)
    gpu.write(at, np.ones(count, np.float32))
    with ThreadPoolExecutor(1) as thread:
        for where, elements in ((at, count), (plain.at, COUNT)):
            thread.submit(lambda: wait(allreduce_async(f"t.{elements}", where, where, [elements], "float32"))).result()
            expect((gpu.read(where, np.ones(elements, np.float32)) == rueda.size()).all(), f"{elements} elements")
    say("ok without_context")


def beyond(gpu):
    """Shows that a tensor that goes on where nothing is mapped is refused; then memory is mapped there."""
    segment = Segment(gpu, 4, 2)
    at, count = segment.across(0, 3)
    try:
        allreduce_async("beyond", at, at, [count], "float32")
        expect(False, "it was not refused")
    except DeviceError as error:
        say(f"error {error.code} {error}")
    segment.map(2)
    gpu.write(at, np.ones(count, np.float32))
    wait(allreduce_async("beyond", at, at, [count], "float32"))
    expect((gpu.read(at, np.ones(count, np.float32)) == rueda.size()).all(), "after it was mapped")
    try:
        allreduce_async("nowhere", segment.at(3), segment.at(3), [1], "float32")
        expect(False, "it was not refused")
    except DeviceError as error:
        say(f"nowhere {error.code} {error}")
    say("ok beyond")
