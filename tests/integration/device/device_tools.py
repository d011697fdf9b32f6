"""Holds what the scenarios of device_rank.py have in common."""

import os
from ctypes import c_size_t, c_uint64

import numpy as np
import rueda

# Where ranks have GPUs of their own, the count is so large that each GPU takes a part.
COUNT = int(os.environ.get("RUEDA_TEST_COUNT", "1000"))


def say(text):
    print(text, flush=True)


def expect(condition, what):
    if not condition:
        raise AssertionError(f"rank {rueda.rank()}: {what}")


def values(dtype, seed, count=COUNT):
    random = np.random.default_rng(1000 * seed + rueda.rank())
    if dtype == "bool":
        return random.integers(0, 2, count).astype(bool)
    if np.dtype(dtype).kind in "iu":
        return random.integers(0, 100, count).astype(dtype)
    if np.dtype(dtype).kind == "c":
        return (random.standard_normal(count) + 1j * random.standard_normal(count)).astype(dtype)
    return random.standard_normal(count).astype(dtype)


class Buffer:
    """Holds device memory with an array's values."""

    def __init__(self, gpu, array, by_descriptor=False, behind=0):
        self.gpu, self.like = gpu, array
        self.base = gpu.allocate(behind + max(array.nbytes, 1), by_descriptor)
        self.at = self.base + behind
        gpu.write(self.at, array)

    def get(self):
        return self.gpu.read(self.at, self.like)


def address_of(buffer):
    return c_uint64(buffer.at)


def size_of(pinned):
    return c_size_t(pinned.array.nbytes)


def same_bits(one, other):
    return one.tobytes() == other.tobytes()


def nearly_same(one, other):
    wide = np.complex128 if one.dtype.kind == "c" else np.float64
    return np.allclose(one.astype(wide), other.astype(wide), rtol=2e-2 if one.dtype == np.float16 else 1e-5,
                       atol=2e-2 if one.dtype == np.float16 else 1e-5)
