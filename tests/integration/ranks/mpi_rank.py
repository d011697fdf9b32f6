"""Calls the functions of librueda_mpi.so as jaxlib would, but without it: mpi_rank.py LIBRARY PART, under ruedarun on four ranks.

Parts: `right` has collectives and messages whose results are looked at; `wrong` has calls that must fail with a sentence; `killed` has
rank 1 kill itself within a split of the world."""

import ctypes
import os
import signal
import sys
from ctypes import byref, c_int, c_size_t, c_void_p

import numpy as np

LIBRARY = ctypes.CDLL(sys.argv[1])
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def handle(name):
    return c_size_t(c_size_t.in_dll(LIBRARY, f"MPIABI_{name}").value)


def number(name):
    return c_int.in_dll(LIBRARY, f"MPIABI_{name}").value


def call(name, *arguments):
    """Returns the sentence of the error with which a function has failed, or None."""
    code = getattr(LIBRARY, f"MPIABI_{name}")(*arguments)
    if code == 0:
        return None
    text = ctypes.create_string_buffer(1024)
    length = c_int()
    assert LIBRARY.MPIABI_Error_string(code, text, byref(length)) == 0
    assert len(text.value) == length.value
    return text.value.decode()


def succeeds(name, *arguments):
    problem = call(name, *arguments)
    assert problem is None, f"MPI_{name}: {problem}"


def fails(text, name, *arguments):
    problem = call(name, *arguments)
    assert problem is not None and text in problem, f"MPI_{name}: {problem!r} lacks {text!r}"


def at(array):
    return array.ctypes.data_as(c_void_p)


def split(color, key):
    """Returns a communicator, this process's place in it, and its size."""
    made, rank, size = c_size_t(), c_int(), c_int()
    succeeds("Comm_split", handle("COMM_WORLD"), color, key, byref(made))
    if made.value == handle("COMM_NULL").value:
        return made, None, 0
    succeeds("Comm_rank", made, byref(rank))
    succeeds("Comm_size", made, byref(size))
    return made, rank.value, size.value


def allreduce(communicator, array, op="SUM", datatype="FLOAT"):
    result = np.zeros_like(array)
    succeeds("Allreduce", at(array), at(result), array.size, handle(datatype), handle(op), communicator)
    return result


def in_order(communicator, ranks):
    """Checks all collectives of a communicator that has these ranks of the job in its places."""
    place = ranks.index(RANK)
    mine = np.arange(6, dtype=np.float32) + RANK
    everybody = np.stack([np.arange(6, dtype=np.float32) + rank for rank in ranks])
    np.testing.assert_array_equal(allreduce(communicator, mine), everybody.sum(0))
    np.testing.assert_array_equal(allreduce(communicator, mine, "MAX"), everybody.max(0))
    gathered = np.zeros((len(ranks), 6), np.float32)
    succeeds("Allgather", at(mine), 6, handle("FLOAT"), at(gathered), 6, handle("FLOAT"), communicator)
    np.testing.assert_array_equal(gathered, everybody)
    counts = [1 + i for i in range(len(ranks))]  # uneven, and by places
    whole = np.arange(sum(counts), dtype=np.float64) * (RANK + 1)
    part = np.zeros(counts[place])
    succeeds("Reduce_scatter", at(whole), at(part), (c_int * len(ranks))(*counts), handle("DOUBLE"), handle("SUM"), communicator)
    expected = np.arange(sum(counts)) * float(sum(rank + 1 for rank in ranks))
    np.testing.assert_array_equal(part, expected[sum(counts[:place]):sum(counts[:place + 1])])
    messages(communicator, ranks, place)


def messages(communicator, ranks, place):
    size = len(ranks)
    after, before = (place + 1) % size, (place - 1) % size
    sent, received = np.full(1000, place, np.int32), np.zeros((2, 1000), np.int32)
    requests = [c_size_t() for _ in range(4)]
    for i in range(2):  # messages of one tag come in the order in which they were sent
        succeeds("Irecv", at(received[i]), 4000, handle("BYTE"), before, 7, communicator, byref(requests[i]))
    second = sent + 100
    for i, array in enumerate((sent, second)):
        succeeds("Isend", at(array), 4000, handle("BYTE"), after, 7, communicator, byref(requests[2 + i]))
    for request in requests:
        succeeds("Wait", byref(request), None)
        assert request.value == handle("REQUEST_NULL").value
    np.testing.assert_array_equal(received, np.stack([np.full(1000, before), np.full(1000, before + 100)]))
    for step in range(1, size):
        to, source = (place + step) % size, (place - step) % size
        mine, theirs = np.full(3, 10 * place + to, np.int64), np.zeros(3, np.int64)
        succeeds("Sendrecv", at(mine), 3, handle("INT64_T"), to, 0, at(theirs), 3, handle("INT64_T"), source, 0, communicator, None)
        np.testing.assert_array_equal(theirs, np.full(3, 10 * source + place))


def right():
    provided, flag, version = c_int(), c_int(), ctypes.create_string_buffer(8192)
    succeeds("Init_thread", None, None, number("THREAD_FUNNELED"), byref(provided))
    assert provided.value == number("THREAD_MULTIPLE")
    succeeds("Is_thread_main", byref(flag))
    assert flag.value == 1
    succeeds("Get_library_version", version, byref(flag))
    assert version.value.startswith(b"librueda_mpi "), version.value
    in_order(handle("COMM_WORLD"), list(range(SIZE)))
    same, place, size = split(0, RANK)  # as XLA does for a program of all devices
    assert (place, size) == (RANK, SIZE)
    in_order(same, list(range(SIZE)))
    backwards, place, size = split(5, -RANK)
    in_order(backwards, list(range(SIZE))[::-1])
    for _ in range(100):  # rows, columns, and the same again: more communicators than there may be process sets
        row, _, size = split(RANK // 2, RANK)
        column, place, _ = split(RANK % 2, SIZE - RANK)
    assert size == 2
    in_order(row, [RANK // 2 * 2, RANK // 2 * 2 + 1])
    in_order(column, [RANK % 2 + 2, RANK % 2])
    alone, place, size = split(RANK, 0)
    assert (place, size) == (0, 1)
    np.testing.assert_array_equal(allreduce(alone, np.ones(3, np.float32)), np.ones(3))
    some, place, size = split(0 if RANK < 3 else number("UNDEFINED"), 0)
    if RANK < 3:
        in_order(some, [0, 1, 2])
        succeeds("Comm_free", byref(some))
    for datatype, dtype in (("INT8_T", np.int8), ("UINT16_T", np.uint16), ("UINT32_T", np.uint32), ("C_DOUBLE_COMPLEX", np.complex128)):
        np.testing.assert_array_equal(allreduce(row, np.full(5, 3, dtype), "PROD", datatype), np.full(5, 9, dtype))
    in_place = np.full(4, RANK, np.float32)
    mark = c_void_p.in_dll(LIBRARY, "MPIABI_IN_PLACE")
    succeeds("Allreduce", mark, at(in_place), 4, handle("FLOAT"), handle("SUM"), same)
    np.testing.assert_array_equal(in_place, np.full(4, SIZE * (SIZE - 1) / 2))
    succeeds("Finalize")
    succeeds("Comm_free", byref(row))  # as jaxlib 0.10.2 does


def wrong():
    x, y, made = np.ones(4, np.float32), np.zeros(16, np.float32), c_size_t()
    world, real, total = handle("COMM_WORLD"), handle("FLOAT"), handle("SUM")
    fails("MPI_Init_thread has not been called", "Allreduce", at(x), at(y), 4, real, total, world)
    succeeds("Init", None, None)
    fails("MPI_Barrier is not in librueda_mpi", "Barrier", world)
    fails("MPI_Type_contiguous is not in librueda_mpi", "Type_contiguous", 3, real, byref(made))
    fails("there is no such communicator", "Allreduce", at(x), at(y), 4, real, total, c_size_t(12345))
    fails("librueda_mpi has MPI_BYTE, ", "Allreduce", at(x), at(y), 4, handle("LONG_DOUBLE"), total, world)
    fails("librueda_mpi has MPI_SUM, ", "Allreduce", at(x), at(y), 4, real, handle("LXOR"), world)
    fails("a count of -4 is negative", "Allreduce", at(x), at(y), -4, real, total, world)
    fails("the same count", "Allgather", at(x), 4, real, at(y), 3, real, world)
    fails("splits MPI_COMM_WORLD alone", "Comm_split", c_size_t(12345), 0, 0, byref(made))
    fails("splits MPI_COMM_WORLD alone", "Allreduce", at(x), at(y), 4, real, total, made)  # XLA looks there, and not before
    fails("a color of 0 or more", "Comm_split", world, -7, 0, byref(made))
    fails("Comm_free takes", "Comm_free", byref(c_size_t(world.value)))
    fails("ranks 0 to 3, and 4 is none", "Isend", at(x), 4, real, 4, 0, world, byref(made))
    fails("fills no MPI_Status", "Wait", byref(made), at(y))
    fails("complex", "Allreduce", at(x), at(y), 2, handle("C_COMPLEX"), handle("MAX"), world)
    np.testing.assert_array_equal(allreduce(world, x), np.full(4, SIZE))  # nothing of this has done harm
    succeeds("Finalize")
    fails("MPI_Finalize has been called", "Allreduce", at(x), at(y), 4, real, total, world)


def killed():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    succeeds("Init", None, None)
    allreduce(handle("COMM_WORLD"), np.ones(3, np.float32))
    if RANK == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    x, y, made = np.ones(4, np.float32), np.zeros(4, np.float32), c_size_t()
    fails("rank 1", "Comm_split", handle("COMM_WORLD"), 0, 0, byref(made))
    fails("rank 1", "Allreduce", at(x), at(y), 4, handle("FLOAT"), handle("SUM"), made)
    request = c_size_t()
    problem = call("Irecv", at(x), 4, handle("FLOAT"), 1, 0, handle("COMM_WORLD"), byref(request)) or call("Wait", byref(request), None)
    assert "rank 1" in problem, problem


def main():
    {one.__name__: one for one in (right, wrong, killed)}[sys.argv[2]]()
    print("ok", flush=True)


if __name__ == "__main__":
    main()
