"""Runs a rank with tensors in the memory of a GPU (device_support.py). Run as: device_rank.py SCENARIO."""

import os
import sys
import threading
import time
from ctypes import byref, c_int, c_void_p

import numpy as np
import rueda
from device_across import (across, across_again, across_known, across_large, across_many, across_streams, beyond,
                           without_context)
from device_declared import declared
from device_nccl import grouped_beside_a_lock, joined, late_stream, one, rounded, sets, too_many_sets
from device_staged import beyond_staging, counted, forgotten, two_groups, two_streams, unasked, unwaited
from device_support import (AVERAGE, DTYPES, LIBRARY, MAX, MIN, NO_STREAM, PRODUCT, SUM, DeviceError, Gate, Gpu, Pinned,
                            allreduce_async, broadcast_async, check, grouped_async, is_done, stats, tensor, wait, wait_on)
from device_tools import COUNT, Buffer, address_of, expect, nearly_same, same_bits, say, size_of, values

OPERATORS = {SUM: rueda.Sum, AVERAGE: rueda.Average, MIN: rueda.Min, MAX: rueda.Max, PRODUCT: rueda.Product}


def same(gpu, are_equal=same_bits):
    """Shows that whatever is reduced on the device has the bits that the host gives."""
    for dtype in DTYPES:
        for operator, named in OPERATORS.items():
            if dtype == "bool" and operator == AVERAGE or dtype.startswith("complex") and operator in (MIN, MAX):
                continue
            name = f"{dtype}.{operator}"
            given = values(dtype, operator)
            wanted = rueda.allreduce(given, op=named, name=f"host.{name}")
            source, target = Buffer(gpu, given), Buffer(gpu, given, by_descriptor=operator % 2 == 1)
            wait(allreduce_async(name, source.at, target.at, [COUNT], dtype, operator))
            expect(are_equal(target.get(), wanted), f"{name} differs from the host's")
            expect(same_bits(source.get(), given), f"the input of {name} has changed")
            wait(allreduce_async(name + ".in", source.at, source.at, [COUNT], dtype, operator))
            expect(are_equal(source.get(), wanted), f"{name} in place differs from the host's")
    given = values("float32", 9)
    wanted = rueda.allreduce(given, op=rueda.Sum, name="host.scaled", prescale_factor=0.5, postscale_factor=3.0)
    source = Buffer(gpu, given, behind=4)
    wait(allreduce_async("scaled", source.at, source.at, [COUNT], "float32", SUM, scales=(0.5, 3.0)))
    expect(are_equal(source.get(), wanted), "scaled differs from the host's")
    say("ok same")


def alike(gpu):
    """Reduces on several nodes with several ranks, where the device adds up a node's ranks first: sums differ in their last bits.
    """
    same(gpu, nearly_same)


def broadcast(gpu):
    for root in range(rueda.size()):
        given = values("float64", 20 + root)
        wanted = rueda.broadcast(given, root_rank=root, name=f"host.broadcast.{root}")
        in_place, source, target = Buffer(gpu, given), Buffer(gpu, given), Buffer(gpu, given)
        wait(broadcast_async(f"in.{root}", in_place.at, in_place.at, [COUNT], "float64", root))
        wait(broadcast_async(f"out.{root}", source.at, target.at, [COUNT], "float64", root))
        expect(same_bits(in_place.get(), wanted), "a broadcast in place")
        expect(same_bits(target.get(), wanted), "a broadcast out of place")
    say("ok broadcast")


def group(gpu):
    """Reduces tensors of one allocation and of several, for many steps."""
    parts = [values("float32", 40 + i, 10 * i + 1) for i in range(20)]
    wanted = [rueda.allreduce(part, op=rueda.Sum, name=f"host.group.{i}") for i, part in enumerate(parts)]
    whole = gpu.allocate(sum(part.nbytes for part in parts))
    before = stats()
    for step in range(5):
        at, tensors, places = whole, [], []
        for i, part in enumerate(parts):
            gpu.write(at, part)
            tensors.append(tensor(f"group.{i}", at, at, [part.size], "float32"))
            places.append(at)
            at += part.nbytes
        wait(grouped_async("group", tensors))
        for i, part in enumerate(parts):
            expect(nearly_same(gpu.read(places[i], part), wanted[i]), f"{i} of the group in step {step}")
    known = stats()
    misses, hits = known.cache_misses - before.cache_misses, known.cache_hits - before.cache_hits
    expect(misses == 1 and hits == 5 * 2 * len(parts) - 1, f"{misses} misses, {hits} hits")
    say("ok group")


def warm(gpu):
    """Uses device memory once: the first use starts the worker and pins memory, for which a driver may wait until streams are
    idle."""
    buffer = Buffer(gpu, np.zeros(COUNT, np.float32))
    wait(allreduce_async("warm", buffer.at, buffer.at, [COUNT], "float32", SUM, gpu.stream()))


def streams(gpu):
    """Shows that nobody waits on the host: the input is copied, reduced and copied back in the order of a stream."""
    warm(gpu)
    gate, stream = Gate(gpu), gpu.stream()
    given = Pinned(gpu, COUNT, np.float32)
    got = Pinned(gpu, COUNT, np.float32)
    given.array[:] = rueda.rank() + 1
    buffer = Buffer(gpu, np.full(COUNT, 1e6, np.float32))
    gate.stop(stream)
    for step in range(3):
        begin = time.monotonic()
        gpu("cuMemcpyHtoDAsync_v2", address_of(buffer), given.at, size_of(given), stream)
        handle = allreduce_async("streamed", buffer.at, buffer.at, [COUNT], "float32", SUM, stream)
        wait_on(stream, handle)
        gpu("cuMemcpyDtoHAsync_v2", got.at, address_of(buffer), size_of(got), stream)
        if step == 0:
            expect(time.monotonic() - begin < 10 and not gpu.is_idle(stream), "the stream did not wait")
            time.sleep(0.2)
            expect(not gpu.is_idle(stream) and (got.array == 0).all(), "something was done before its time")
            gate.open()
        gpu.synchronize(stream)
        wanted = sum(range(1, rueda.size() + 1))
        expect((got.array == wanted).all(), f"step {step}: {got.array[:4]} instead of {wanted}")
        expect(wait(handle).contributors == rueda.size(), "contributors")
    # The reductions follow each other on a stream, and the host does not look between them.
    handles = []
    for step in range(4):
        handles.append(allreduce_async(f"chain.{step}", buffer.at, buffer.at, [COUNT], "float32", SUM, stream))
        wait_on(stream, handles[-1])
    gpu("cuMemcpyDtoHAsync_v2", got.at, address_of(buffer), size_of(got), stream)
    gpu.synchronize(stream)
    expect((got.array == wanted * rueda.size() ** 4).all(), f"a chain: {got.array[:4]}")
    for handle in handles:
        wait(handle)
    expect(stats().stream_waits >= 4, "stream waits")
    say("ok streams")


def ahead(gpu):
    """Lets the host run ahead of a stream in which each input is the result before; nothing that is behind holds up others."""
    warm(gpu)
    gate, stream = Gate(gpu), gpu.stream()
    ranks, chain = rueda.size(), 8
    for step in range(3):
        buffer = Buffer(gpu, np.ones(COUNT, np.float64))
        free = Buffer(gpu, np.full(COUNT, step, np.float32))
        gate.stop(stream)
        begin, handles = time.monotonic(), []
        for number in range(chain):
            handles.append(allreduce_async(f"ahead.{number}", buffer.at, buffer.at, [COUNT], "float64", SUM, stream))
            wait_on(stream, handles[-1])
        beside = allreduce_async("beside", free.at, free.at, [COUNT], "float32")
        on_host = rueda.allreduce_async(np.full(COUNT, step, np.float32), op=rueda.Sum, name="host")
        expect(time.monotonic() - begin < 10, "a submission has waited for a stream")
        expect(not gpu.is_idle(stream) and not is_done(handles[0]) and (buffer.get() == 1).all(), "nothing is ready")
        gate.open()
        if step == 1:
            gpu.synchronize(stream)
        for handle in reversed(handles):
            wait(handle)
        wait(beside)
        expect((rueda.synchronize(on_host) == step * ranks).all(), f"host memory in step {step}")
        gpu.synchronize(stream)
        expect((buffer.get() == float(ranks) ** chain).all(), f"a chain in step {step}: {buffer.get()[:4]}")
        expect((free.get() == step * ranks).all(), f"beside it in step {step}: {free.get()[:4]}")
    say("ok ahead")


def joined_behind(gpu):
    """Shows that a rank that joins after a submission still gives what it submitted, though its stream is yet to come to it."""
    warm(gpu)
    stream, gate, ranks = gpu.stream(), Gate(gpu), rueda.size()
    is_last = rueda.rank() == ranks - 1
    for step in range(3):
        one, other = Buffer(gpu, np.full(COUNT, 1, np.float32)), Buffer(gpu, np.full(COUNT, 2, np.float32))
        alone = Buffer(gpu, np.full(COUNT, 3, np.float32))
        if is_last:
            gate.stop(stream)
        handles = []
        for name, buffer in (("one", one), ("other", other)):
            handles.append(allreduce_async(name, buffer.at, buffer.at, [COUNT], "float32", SUM, stream))
            wait_on(stream, handles[-1])
        if is_last:
            threading.Timer(0.2, gate.open).start()
        else:
            wait(allreduce_async("alone", alone.at, alone.at, [COUNT], "float32"))
            expect((alone.get() == 3 * (ranks - 1)).all(), f"without the last in step {step}: {alone.get()[:4]}")
        rueda.join()
        gpu.synchronize(stream)
        for handle in handles:
            wait(handle)
        expect((one.get() == ranks).all() and (other.get() == 2 * ranks).all(), f"step {step}: {one.get()[:4]}, {other.get()[:4]}")
    say("ok joined_behind")


def again(gpu):
    """Uses a name again as soon as a stream has the result, without a stream."""
    stream = gpu.stream()
    buffer = Buffer(gpu, np.ones(COUNT, np.float32))
    for step in range(300):
        first = allreduce_async("again", buffer.at, buffer.at, [COUNT], "float32", MAX, stream)
        wait_on(stream, first)
        gpu.synchronize(stream)
        second = allreduce_async("again", buffer.at, buffer.at, [COUNT], "float32", MAX)
        wait(second)
        wait(first)
    say("ok again")


def default_stream(gpu):
    """Shows that the stream without a name is that of the GPU where the tensor is, whichever is current."""
    warm(gpu)
    gate, got = Gate(gpu), Pinned(gpu, COUNT, np.float32)
    given = Pinned(gpu, COUNT, np.float32)
    given.array[:] = rueda.rank() + 1
    unnamed, wanted = c_void_p(0), sum(range(1, rueda.size() + 1))
    buffer = Buffer(gpu, np.zeros(COUNT, np.float32))
    for step in range(4):
        gate.stop(unnamed)
        gpu("cuMemcpyHtoDAsync_v2", address_of(buffer), given.at, size_of(given), unnamed)
        gpu.enter(0)
        handle = allreduce_async("unnamed", buffer.at, buffer.at, [COUNT], "float32", SUM, unnamed)
        wait_on(unnamed, handle)
        gpu.enter(gpu.ordinal)
        got.array[:] = 0
        gpu("cuMemcpyDtoHAsync_v2", got.at, address_of(buffer), size_of(got), unnamed)
        time.sleep(0.1)
        expect((got.array == 0).all(), f"step {step}: a stream has overtaken the gate")
        gate.open()
        gpu.synchronize(unnamed)
        expect((got.array == wanted).all(), f"step {step}: {got.array[:4]} instead of {wanted}")
        wait(handle)
        if step == 1:  # the process has tensors on two GPUs from now on
            gpu.enter(0)
            other = Buffer(gpu, np.ones(COUNT, np.float32))
            wait(allreduce_async("elsewhere", other.at, other.at, [COUNT], "float32"))
            expect((other.get() == rueda.size()).all(), "a tensor on the first GPU")
            gpu.enter(gpu.ordinal)
    say("ok default_stream")


def captured(gpu):
    """Shows that a stream from which a CUDA graph is captured takes no submission and no wait, and does so afterwards."""
    stream = gpu.stream()
    buffer = Buffer(gpu, np.ones(COUNT, np.float32))
    for step in range(3):
        handle = allreduce_async("before", buffer.at, buffer.at, [COUNT], "float32", MAX)
        gpu("cuStreamBeginCapture_v2", stream, c_int(2))  # relaxed
        for call in (lambda: allreduce_async("captured", buffer.at, buffer.at, [COUNT], "float32", MAX, stream),
                     lambda: wait_on(stream, handle)):
            try:
                call()
                expect(False, "a stream that is captured was taken")
            except DeviceError as error:
                expect(error.code == -1 and "CUDA graph is being captured" in str(error), str(error))
        gpu("cuStreamEndCapture", stream, byref(c_void_p()))
        wait(handle)
        behind = allreduce_async("captured", buffer.at, buffer.at, [COUNT], "float32", MAX, stream)
        wait_on(stream, behind)
        gpu.synchronize(stream)
        wait(behind)
    say("ok captured")


def crossed(gpu):
    """Lets the other ranks submit in the other order what rank 0's stream has between two tensors; they wait for the first of
    them where it does not depend on that stream."""
    warm(gpu)
    stream = gpu.stream()
    for of_other in (stream, NO_STREAM):
        one, other = Buffer(gpu, np.full(COUNT, 1, np.float32)), Buffer(gpu, np.full(COUNT, 2, np.float32))
        if rueda.rank() == 0:
            first = allreduce_async("one", one.at, one.at, [COUNT], "float32", SUM, stream)
            wait_on(stream, first)
            second = allreduce_async("other", other.at, other.at, [COUNT], "float32", SUM, of_other)
        else:
            time.sleep(0.3)
            second = allreduce_async("other", other.at, other.at, [COUNT], "float32")
            if of_other is NO_STREAM:
                wait(second)
            first = allreduce_async("one", one.at, one.at, [COUNT], "float32")
        wait(first)
        if rueda.rank() == 0 or of_other is not NO_STREAM:
            wait(second)
        expect((one.get() == rueda.size()).all() and (other.get() == 2 * rueda.size()).all(), "crossed")
    say("ok crossed")


def skipped(gpu):
    """Skips the first tensor of a locked schedule while nobody but a stream waits for the second."""
    warm(gpu)
    stream = gpu.stream()
    one, other = Buffer(gpu, np.zeros(COUNT, np.float32)), Buffer(gpu, np.zeros(COUNT, np.float32))
    for step in range(12):
        for name, buffer in (("one", one), ("other", other))[step // 10:]:
            handle = allreduce_async(name, buffer.at, buffer.at, [COUNT], "float32", SUM, stream)
            wait_on(stream, handle)
            gpu.synchronize(stream)
            wait(handle)
    say("ok skipped")


def recycle(gpu):
    """Shows that memory that comes again at the same address is another allocation."""
    first = Buffer(gpu, np.full(COUNT, 1, np.float32))
    wait(allreduce_async("a", first.at, first.at, [COUNT], "float32"))
    for number in range(4):
        if number % 2 == 0:
            check(LIBRARY.rueda_device_forget(c_void_p(first.at)))
        gpu.free(first.base)
        again = Buffer(gpu, np.full(COUNT, number + 2, np.float32))
        expect(again.at == first.at, "the address did not come again")
        wait(allreduce_async("a", again.at, again.at, [COUNT], "float32"))
        expect((again.get() == (number + 2) * rueda.size()).all(), f"number {number}: {again.get()[:4]}")
    known = stats()
    expect((known.cache_misses, known.recycled_addresses, known.allocations) == (5, 2, 1),
           f"{known.cache_misses} misses, {known.recycled_addresses} recycled, {known.allocations} known")
    say("ok recycle")


def announced(gpu):
    """Uses an allocator that says what it frees, so that the driver is hardly asked."""
    check(LIBRARY.rueda_device_announce_frees(1))
    for number in range(50):
        buffer = Buffer(gpu, np.full(COUNT, number, np.float32))
        for _ in range(4):
            wait(allreduce_async("a", buffer.at, buffer.at, [COUNT], "float32", MAX))
        expect((buffer.get() == number).all(), f"number {number}: {buffer.get()[:4]}")
        check(LIBRARY.rueda_device_forget(c_void_p(buffer.at)))
        gpu.free(buffer.base)
    known = stats()
    expect((known.cache_misses, known.cache_hits, known.recycled_addresses, known.allocations) == (50, 350, 0, 0),
           f"{known.cache_misses} misses, {known.cache_hits} hits, {known.allocations} known")
    expect(known.buffer_checks == 1, f"{known.buffer_checks} checks of 350")
    say("ok announced")


def mismatch(gpu):
    buffer = Buffer(gpu, values("float32", 1))
    wait(allreduce_async("before", buffer.at, buffer.at, [COUNT], "float32"))
    try:
        if rueda.rank() == 0:
            wait(allreduce_async("t", buffer.at, buffer.at, [COUNT], "float32", stream=gpu.stream()))
        else:
            rueda.allreduce(values("float32", 1), op=rueda.Sum, name="t")
        expect(False, "device and host memory were reduced together")
    except (DeviceError, rueda.RuedaError) as error:
        say(f"error {error}")
    wait(allreduce_async("after", buffer.at, buffer.at, [COUNT], "float32"))
    say("ok mismatch")


def refused(gpu):
    """Shows that device memory is refused, and host memory goes on."""
    buffer = Buffer(gpu, values("float32", 1))
    for attempt in range(2):
        try:
            wait(allreduce_async("t", buffer.at, buffer.at, [COUNT], "float32"))
            expect(False, "it was not refused")
        except DeviceError as error:
            say(f"error {attempt} {error.code} {error}")
    got = rueda.allreduce(np.ones(COUNT, np.float32), op=rueda.Sum, name="host")
    expect((got == rueda.size()).all(), "host memory")
    say("ok refused")


def large(gpu):
    """Uses more than what is there at first for the way between nodes, and several tensors at a time."""
    count = 18 << 20
    buffers = [Buffer(gpu, np.full(count, rueda.rank() + number, np.int32)) for number in range(2)]
    handles = [allreduce_async(f"large.{number}", buffer.at, buffer.at, [count], "int32")
               for number, buffer in enumerate(buffers)]
    for number, (buffer, handle) in enumerate(zip(buffers, handles)):
        wait(handle)
        wanted = sum(range(rueda.size())) + number * rueda.size()
        expect((buffer.get() == wanted).all(), f"large.{number}: {buffer.get()[:4]} instead of {wanted}")
    say("ok large")


def rounds(gpu):
    """Sends tensors between nodes in rounds: fused tensors of odd sizes, out of place and in place, and a broadcast."""
    stream, ranks = gpu.stream(), rueda.size()
    counts = [1, 700_001, 0, 1_300_003, 33, 2_500_000]
    for step in range(3):
        given = [np.arange(count, dtype=np.int32) % 1000 + rueda.rank() + step for count in counts]
        inputs = [Buffer(gpu, part) for part in given]
        outputs = inputs if step == 0 else [Buffer(gpu, np.zeros_like(part)) for part in given]
        handle = grouped_async("rounds", [tensor(f"rounds.{i}", inputs[i].at, outputs[i].at, [part.size], "int32")
                                          for i, part in enumerate(given)], stream=stream)
        wait_on(stream, handle)
        gpu.synchronize(stream)
        for i, count in enumerate(counts):
            wanted = (np.arange(count, dtype=np.int32) % 1000 + step) * ranks + sum(range(ranks))
            expect((outputs[i].get() == wanted).all(), f"tensor {i} in step {step}")
            expect(step == 0 or same_bits(inputs[i].get(), given[i]), f"the input {i} of step {step} has changed")
        wait(handle)
        for buffer in {buffer.base: buffer for buffer in inputs + outputs}.values():
            check(LIBRARY.rueda_device_forget(c_void_p(buffer.at)))
            gpu.free(buffer.base)
    for root in range(ranks):
        whole = np.arange(1_200_007, dtype=np.float64) + root
        buffer = Buffer(gpu, whole if rueda.rank() == root else np.zeros_like(whole))
        wait(broadcast_async(f"rounds.{root}", buffer.at, buffer.at, [whole.size], "float64", root))
        expect(same_bits(buffer.get(), whole), f"a broadcast from rank {root}")
    say("ok rounds")


def too_large(gpu):
    """Reduces a tensor that goes, and a second one that is too much for the daemon."""
    for count in (1 << 10, 1 << 20):
        buffer = Buffer(gpu, np.ones(count, np.float32))
        try:
            wait(allreduce_async(f"t.{count}", buffer.at, buffer.at, [count], "float32"))
            expect(count == 1 << 10 and (buffer.get() == rueda.size()).all(), f"{count} elements")
        except DeviceError as error:
            say(f"error {error.code} {error}")
    sys.exit(3)


def mixed(gpu):
    """Reduces host memory behind device memory whose stream is late, again and again, until the order is locked, and after that.
    """
    warm(gpu)
    stream = gpu.stream()
    buffer = Buffer(gpu, np.zeros(COUNT, np.float32))
    given = Pinned(gpu, COUNT, np.float32)
    given.array[:] = 1
    gate = Gate(gpu)
    for step in range(15):
        gate.stop(stream)
        gpu("cuMemcpyHtoDAsync_v2", address_of(buffer), given.at, size_of(given), stream)
        on_device = allreduce_async("device", buffer.at, buffer.at, [COUNT], "float32", SUM, stream)
        on_host = rueda.allreduce_async(np.full(COUNT, step, np.float32), op=rueda.Sum, name="host")
        time.sleep(0.01 * (rueda.rank() + step % 2))
        gate.open()
        expect((rueda.synchronize(on_host) == step * rueda.size()).all(), f"host memory in step {step}")
        wait(on_device)
        expect((buffer.get() == rueda.size()).all(), f"device memory in step {step}")
    say("ok mixed")


def late(gpu):
    """Shows that a result does not wait for a tensor whose stream is late."""
    warm(gpu)
    stream, gate = gpu.stream(), Gate(gpu)
    early, behind = Buffer(gpu, np.ones(COUNT, np.float32)), Buffer(gpu, np.full(COUNT, 5, np.float32))
    for step in range(15):
        gate.stop(stream)
        first = allreduce_async("early", early.at, early.at, [COUNT], "float32", AVERAGE)
        second = allreduce_async("behind", behind.at, behind.at, [COUNT], "float32", MAX, stream)
        wait(first, 10_000)
        expect((early.get() == 1).all(), f"early in step {step}: {early.get()[:4]}")
        gate.open()
        wait(second)
        expect((behind.get() == 5).all(), f"behind in step {step}: {behind.get()[:4]}")
    say("ok late")


def leaver(gpu):
    """Lets rank 0 say goodbye with a tensor under way whose stream never comes to it."""
    buffer = Buffer(gpu, np.zeros(COUNT, np.float32))
    wait(allreduce_async("first", buffer.at, buffer.at, [COUNT], "float32"))
    if rueda.rank() == 0:
        stream, gate = gpu.stream(), Gate(gpu)
        gate.stop(stream)
        allreduce_async("left", buffer.at, buffer.at, [COUNT], "float32", SUM, stream)
        time.sleep(0.3)
        try:
            rueda.shutdown()
            expect(False, "it left without a word")
        except rueda.RuedaTimeoutError as error:
            say(f"left {error}")
        os._exit(0)
    try:
        wait(allreduce_async("left", buffer.at, buffer.at, [COUNT], "float32"))
        expect(False, "there was a result without rank 0")
    except DeviceError as error:
        say(f"error {error.code} {error}")
    sys.exit(3)


def loop(gpu, count=1 << 16):
    """Reduces until something happens."""
    stream = gpu.stream()
    buffer = Buffer(gpu, np.zeros(count, np.float32))
    step = 0
    try:
        while True:
            handle = allreduce_async(f"loop.{step % 4}", buffer.at, buffer.at, [count], "float32", MAX, stream)
            wait_on(stream, handle)
            gpu.synchronize(stream)
            wait(handle)
            step += 1
            if step == 20:
                say("looping")
    except DeviceError as error:
        say(f"error {error.code} at {time.monotonic()} {error}")
    gpu.synchronize(stream)
    say("released")
    sys.exit(3)


def loop_in_rounds(gpu):
    loop(gpu, 5 << 20)


def loop_large(gpu):
    """Reduces tensors so large, and so many at a time, that the GPU is nearly always at one of them."""
    count = int(os.environ["RUEDA_TEST_COUNT"])
    buffers = [Buffer(gpu, np.zeros(count, np.float32)) for _ in range(3)]
    handles = []
    step = 0
    try:
        while True:
            if len(handles) == len(buffers):
                wait(handles.pop(0))
            at = buffers[step % len(buffers)].at
            handles.append(allreduce_async(f"large.{step % len(buffers)}", at, at, [count], "float32", MAX))
            step += 1
            if step == 20:
                say("looping")
    except DeviceError as error:
        say(f"error {error.code} at {time.monotonic()} {error}")
    say("released")
    sys.exit(3)


def stuck(gpu):
    """Lets rank 0's stream wait for what rank 1 never gives."""
    stream = gpu.stream()
    buffer = Buffer(gpu, np.zeros(COUNT, np.float32))
    wait(allreduce_async("first", buffer.at, buffer.at, [COUNT], "float32"))
    if rueda.rank() != 0:
        say("sleeping")
        time.sleep(1000)
    handle = allreduce_async("stuck", buffer.at, buffer.at, [COUNT], "float32", SUM, stream)
    wait_on(stream, handle)
    behind = allreduce_async("behind", buffer.at, buffer.at, [COUNT], "float32", SUM, stream)
    wait_on(stream, behind)
    say("stuck")
    gpu.synchronize(stream)  # no other thread of this program is in librueda
    say("released")
    for each in (behind, handle):
        try:
            wait(each)
            expect(False, "there was a result without rank 1")
        except DeviceError as error:
            told = error
    say(f"error {told.code} at {time.monotonic()} {told}")
    time.sleep(0.5)  # a rank that is told looks at what is left
    sys.exit(3)


SCENARIOS = {function.__name__: function
             for function in (same, alike, broadcast, group, streams, ahead, joined_behind, again, default_stream, captured, crossed, skipped, recycle, announced, across,
                              across_known, across_again, across_large, across_many, across_streams, without_context,
                              beyond, mismatch, large, rounds, too_large, mixed, late, leaver, refused, loop,
                              loop_in_rounds, loop_large, stuck, beyond_staging, counted, forgotten, two_groups, two_streams,
                              unasked, unwaited, grouped_beside_a_lock, joined, late_stream, one, rounded, sets,
                              too_many_sets, declared)}


def main():
    say(f"pid {os.getpid()}")
    rueda.init()
    gpu = Gpu()
    for name in sys.argv[1:]:
        SCENARIOS[name](gpu)
    rueda.shutdown()


if __name__ == "__main__":
    main()
