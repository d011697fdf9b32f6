"""Runs a rank that sends to other ranks and receives from them.

transfers_rank.py SCENARIO..."""

import os
import random
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np  # noqa: E402
import rueda  # noqa: E402
from rueda._core import _errors  # noqa: E402

SEED = 20261129


def values(source, destination, number, count, dtype=np.float32):
    return ((np.arange(count) + 7 * source + 31 * destination + number) % 120).astype(dtype)


def ring():
    """Passes arrays round the ring, of sizes from nothing to several parts of a channel, in memory of the daemon's and not."""
    self, size = rueda.rank(), rueda.size()
    for number, count in enumerate((0, 1, 5, 8192, 8193, 300_001, 2_500_000)):
        for make in (np.zeros, rueda.empty):
            out = make((count,), np.float32)
            out[...] = values(self, (self + 1) % size, number, count)
            back = make((count,), np.float32)
            receiving = rueda.recv_async(back, (self - 1) % size, number)
            rueda.send(out, (self + 1) % size, number)
            assert rueda.synchronize(receiving) == (self - 1) % size
            assert (back == values((self - 1) % size, self, number, count)).all(), count


def many():
    """Has 1,000 transfers between all pairs of ranks under way, itself among them, submitted and waited for in any order."""
    self, size = rueda.rank(), rueda.size()
    shared = random.Random(SEED)
    plan = [(shared.randrange(size), shared.randrange(size), shared.choice((0, 1, 100, 20_000)), shared.choice((1, 2**40, -3)))
            for _ in range(1000)]
    mine = random.Random(SEED + self)
    actions = []
    for number, (source, destination, count, tag) in enumerate(plan):
        if source == self:
            actions.append((number, True, destination, tag, values(source, destination, number, count)))
        if destination == self:
            actions.append((number, False, source, tag, np.empty(count, np.float32)))
    # Those of one kind, peer and tag match in their order, and their sizes differ; all else may come in any order.
    lanes = {}
    for action in actions:
        lanes.setdefault(action[1:4], []).append(action)
    handles = []
    while lanes:
        lane = mine.choice(sorted(lanes))
        number, sends, peer, tag, array = lanes[lane].pop(0)
        if not lanes[lane]:
            del lanes[lane]
        begin = rueda.send_async if sends else rueda.recv_async
        handles.append((number, sends, peer, array, begin(array, peer, tag)))
    mine.shuffle(handles)
    for number, sends, peer, array, handle in handles:
        told = rueda.synchronize(handle)
        if not sends:
            assert told == peer, (told, peer)
            assert (array == values(peer, self, number, len(array))).all(), (number, peer)


def any_source():
    """Rank 0 takes one array of every rank, itself among them, whoever comes first; then what is left by name."""
    self, size = rueda.rank(), rueda.size()
    sending = [rueda.send_async(values(self, 0, number, 50, np.int64), 0, 9) for number in range(2)]
    if self == 0:
        got = np.empty(50, np.int64)
        seen = []
        for _ in range(size):
            source = rueda.recv(got, tag=9)
            assert (got == values(source, 0, seen.count(source), 50, np.int64)).all()
            seen.append(source)
        for source in range(size):
            for number in range(seen.count(source), 2):
                assert rueda.recv(got, source, 9) == source
                assert (got == values(source, 0, number, 50, np.int64)).all()
    for handle in sending:
        rueda.synchronize(handle)


def dtypes():
    """Sends every dtype, an array with gaps, and into one with gaps."""
    self, size = rueda.rank(), rueda.size()
    for name in ("float64", "float16", "int8", "uint8", "bool", "int16", "uint16", "uint32", "uint64", "complex64", "complex128"):
        out = values(self, 0, 0, 13, np.int64).astype(name)
        back = np.empty(13, name)
        receiving = rueda.recv_async(back, (self - 1) % size)
        rueda.send(out, (self + 1) % size)
        rueda.synchronize(receiving)
        assert (back == values((self - 1) % size, 0, 0, 13, np.int64).astype(name)).all(), name
    wide = np.zeros((6, 10), np.float32)
    receiving = rueda.recv_async(wide[:, ::2], (self - 1) % size)
    rueda.send(np.full((10, 6), self, np.float32)[::2].T, (self + 1) % size)
    rueda.synchronize(receiving)
    assert (wide[:, ::2] == (self - 1) % size).all() and (wide[:, 1::2] == 0).all()


def sets():
    """Sends in a process set; the same tag in another set is another matter."""
    self, size = rueda.rank(), rueda.size()
    ends = rueda.add_process_set([0, size - 1])
    if ends.included():
        other = size - 1 - self
        first, second = np.zeros(3, np.float32), np.zeros(3, np.float32)
        receiving = [rueda.recv_async(first, other), rueda.recv_async(second, other, process_set=ends)]
        rueda.send(np.full(3, 2, np.float32), other, process_set=ends)
        rueda.send(np.full(3, 1, np.float32), other)
        for handle in receiving:
            rueda.synchronize(handle)
        assert (first == 1).all() and (second == 2).all()
    if self == 0:
        for peer, process_set in ((size, None), (1, ends), (-2, None)):
            try:
                rueda.send(np.zeros(1, np.float32), peer, process_set=process_set)
                raise AssertionError("not refused")
            except rueda.RuedaError as error:
                assert error.code == _errors.INVALID_ARGUMENT, error
    rueda.remove_process_set(ends)


def beside_a_lock():
    """Transfers go on beside collectives whose order is locked, and leave the lock alone."""
    self, size = rueda.rank(), rueda.size()
    gradient, back = np.ones(100, np.float32), np.zeros(10, np.float32)
    for step in range(200):
        reducing = [rueda.allreduce_async(gradient, name=f"g{i}", op=rueda.Sum) for i in range(3)]
        receiving = rueda.recv_async(back, (self - 1) % size)
        rueda.send(np.full(10, step, np.float32), (self + 1) % size)
        for handle in reducing:
            assert (rueda.synchronize(handle) == size).all()
        rueda.synchronize(receiving)
        assert (back == step).all()


def mismatch():
    """Both ranks of a transfer whose sizes differ are told so, and the job goes on."""
    self, last = rueda.rank(), rueda.size() - 1
    errors = []
    for sent, wanted in ((np.zeros(3, np.float32), np.zeros(4, np.float32)), (np.zeros(2, np.float64), np.zeros(4, np.float32))):
        try:
            if self == 0:
                rueda.send(sent, last)
            elif self == last:
                rueda.recv(wanted, 0)
            else:
                continue
            raise AssertionError("no error")
        except rueda.RuedaError as error:
            errors.append(str(error))
            assert error.code == _errors.MISMATCH, error
    for error in errors:
        print("told", error, flush=True)
    ring()


def taken_back():
    """What has met nothing is taken back, and nothing is lost by that: later messages meet later receives."""
    self, last = rueda.rank(), rueda.size() - 1
    room = np.zeros(4, np.float32)
    if self == last:
        given_up = [rueda.recv_async(np.zeros(4, np.float32), 0, tag=900) for _ in range(3)]
        given_up.append(rueda.recv_async(np.zeros(4, np.float32), tag=901))
    elif self == 0:
        given_up = [rueda.send_async(np.full(elements, 9, np.float32), last, tag=902) for elements in (4, 4, 100_000)]
    else:
        given_up = []
    for handle in given_up:
        rueda.cancel(handle)
        try:
            rueda.synchronize(handle)
            raise AssertionError("not taken back")
        except rueda.RuedaError as error:
            assert error.code == _errors.UNAVAILABLE and "taken back" in str(error), error
    if self == last:
        try:
            rueda.recv(room, 0, tag=900, timeout=0.05)
            raise AssertionError("nobody sends")
        except rueda.RuedaTimeoutError:
            pass
    rueda.barrier("taken_back")
    if self == 0:
        for tag in (900, 901, 902):
            rueda.send(np.full(4, tag, np.float32), last, tag=tag)
    if self == last:
        for tag in (900, 901, 902):
            rueda.recv(room, 0, tag=tag) if tag != 901 else rueda.recv(room, tag=tag)
            assert (room == tag).all(), room
    done = rueda.allreduce_async(room, name="no transfer")
    try:
        rueda.cancel(done)
        raise AssertionError("an all-reduce cannot be taken back")
    except rueda.RuedaError as error:
        assert error.code == _errors.INVALID_ARGUMENT, error
    rueda.synchronize(done)


def left():
    """A send to a rank that has left fails, and so does a receive that waits for it."""
    self, last = rueda.rank(), rueda.size() - 1
    if self != 0:
        if self == last:
            rueda.recv(np.zeros(1, np.float32), 0)
        return
    waiting = rueda.recv_async(np.zeros(1, np.float32), last, 5)
    rueda.send(np.zeros(1, np.float32), last)
    for begin in (lambda: rueda.synchronize(waiting, 20), lambda: rueda.send(np.zeros(1, np.float32), last, timeout=20)):
        try:
            begin()
            raise AssertionError("no error")
        except rueda.RuedaError as error:
            assert error.code == _errors.SHUT_DOWN and f"rank {last}" in str(error), error


def waits():
    """Rank 0 waits for a message that does not come."""
    print("pid", os.getpid(), flush=True)
    print("waiting", flush=True)
    try:
        if rueda.rank() == 0:
            rueda.recv(np.zeros(4, np.float32), rueda.size() - 1, 77)
        else:
            time.sleep(600)
    except rueda.RuedaError as error:
        print("told", error.code, error, flush=True)
        sys.exit(7)


def main():
    rueda.init()
    for scenario in sys.argv[1:]:
        globals()[scenario]()
        print("ok", scenario, flush=True)
    rueda.shutdown()


main()
