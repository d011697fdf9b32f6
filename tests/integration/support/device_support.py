"""Gives a GPU through the functions of the CUDA driver, and librueda's functions for tensors in its memory. The driver is the
file $RUEDA_CUDA_LIBRARY, or the machine's."""

import ctypes
import mmap
import os
from ctypes import byref, c_int, c_int64, c_size_t, c_uint, c_uint64, c_void_p

import numpy as np
import rueda
from rueda._core import _library as rueda_library
from rueda._core._library import ReduceOptions, Result, Tensor

NO_STREAM = c_void_p(-1)
SUM, AVERAGE, MIN, MAX, PRODUCT = range(5)
DTYPES = {"float32": 0, "float64": 1, "float16": 2, "int32": 4, "int64": 5, "int8": 6, "uint8": 7, "bool": 8,
          "int16": 9, "uint16": 10, "uint32": 11, "uint64": 12, "complex64": 13, "complex128": 14}


class DeviceError(Exception):
    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class Location(ctypes.Structure):
    _fields_ = [("type", c_int), ("id", c_int)]


class AllocationProperties(ctypes.Structure):
    """CUDA's structure CUmemAllocationProp_v1."""

    _fields_ = [("type", c_int), ("handle_types", c_int), ("location", Location), ("windows", c_void_p),
                ("flags", c_uint64)]


class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", c_int)]


class Gpu:
    """Uses the first GPU, or with RUEDA_TEST_OWN_GPU a GPU for each local rank; its primary context is this thread's."""

    def __init__(self):
        self.library_path = os.environ.get("RUEDA_CUDA_LIBRARY", "libcuda.so.1")
        self._cuda = ctypes.CDLL(self.library_path)
        self("cuInit", c_uint(0))
        count = c_int()
        self("cuDeviceGetCount", byref(count))
        has_own = "RUEDA_TEST_OWN_GPU" in os.environ
        self.ordinal = int(os.environ["LOCAL_RANK"]) % count.value if has_own else 0
        self._here = Location(1, self.ordinal)
        self._shareable = AllocationProperties(1, 1, self._here, None, 0)
        self.enter(self.ordinal)

    def enter(self, ordinal):
        """Makes another GPU's context the thread's."""
        device, context = c_int(), c_void_p()
        self("cuDeviceGet", byref(device), c_int(ordinal))
        self("cuDevicePrimaryCtxRetain", byref(context), device)
        self("cuCtxSetCurrent", context)

    def __call__(self, function, *arguments):
        result = getattr(self._cuda, function)(*arguments)
        if result != 0:
            raise DeviceError(result, f"{function} failed with {result}")

    def allocate(self, size, by_descriptor=False):
        address = c_uint64()
        if by_descriptor and not hasattr(self._cuda, "rueda_fake_alloc_fd"):
            return self._allocate_virtual(size)
        self("rueda_fake_alloc_fd" if by_descriptor else "cuMemAlloc_v2", byref(address), c_size_t(size))
        return address.value

    def _allocate_virtual(self, size):
        """Allocates by virtual memory management, for others by a file descriptor. The memory is never freed."""
        size = -(-size // self.granularity()) * self.granularity()
        address = self.reserve(size)
        self.map(address, size)
        return address

    def granularity(self):
        size = c_size_t()
        self("cuMemGetAllocationGranularity", byref(size), byref(self._shareable), c_int(0))
        return size.value

    def reserve(self, size):
        """Reserves addresses, of whole granules, with no memory behind them."""
        address = c_uint64()
        self("cuMemAddressReserve", byref(address), c_size_t(size), c_size_t(0), c_uint64(0), c_uint64(0))
        return address.value

    def map(self, address, size):
        """Makes an allocation of its own, at addresses that are reserved."""
        handle = c_uint64()
        self("cuMemCreate", byref(handle), c_size_t(size), byref(self._shareable), c_uint64(0))
        self("cuMemMap", c_uint64(address), c_size_t(size), c_size_t(0), handle, c_uint64(0))
        self("cuMemSetAccess", c_uint64(address), c_size_t(size), byref(Access(self._here, 3)), c_size_t(1))
        self("cuMemRelease", handle)

    def unmap(self, address, size):
        """Frees the allocation."""
        self("cuMemUnmap", c_uint64(address), c_size_t(size))

    def free(self, address):
        self("cuMemFree_v2", c_uint64(address))

    def free_bytes(self):
        free, total = c_size_t(), c_size_t()
        self("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value

    def write(self, address, array):
        self("cuMemcpyHtoD_v2", c_uint64(address), array.ctypes.data_as(c_void_p), c_size_t(array.nbytes))
        self("cuStreamSynchronize", c_void_p(0))  # it may return while the last of it is on its way

    def read(self, address, like):
        out = np.empty_like(like)
        self("cuMemcpyDtoH_v2", out.ctypes.data_as(c_void_p), c_uint64(address), c_size_t(out.nbytes))
        return out

    def stream(self):
        stream = c_void_p()
        self("cuStreamCreate", byref(stream), c_uint(1))
        return stream

    def synchronize(self, stream):
        self("cuStreamSynchronize", stream)

    def is_idle(self, stream):
        return self._cuda.cuStreamQuery(stream) == 0


class Pinned:
    """Host memory that streams copy from and to, as an array. It is never freed, and stays pinned."""

    _kept = []

    def __init__(self, gpu, count, dtype):
        self._map = mmap.mmap(-1, max(count * np.dtype(dtype).itemsize, 1))
        self._kept.append(self._map)
        self.array = np.frombuffer(self._map, dtype, count)
        self.at = c_void_p(self.array.ctypes.data)
        gpu("cuMemHostRegister_v2", self.at, c_size_t(self.array.nbytes), c_uint(3))


class Gate(Pinned):
    """Makes streams wait until the host opens it; then it can be closed again."""

    def __init__(self, gpu):
        super().__init__(gpu, 512, np.uint64)
        address = c_uint64()
        gpu("cuMemHostGetDevicePointer_v2", byref(address), self.at, c_uint(0))
        self._gpu, self._address, self._value = gpu, address, 0

    def stop(self, stream):
        self._value += 1
        self._gpu("cuStreamWaitValue64_v2", stream, self._address, c_uint64(self._value), c_uint(0))

    def open(self):
        self.array[0] = self._value


def _load():
    library = rueda_library.load()
    signatures = {"rueda_device_forget": [c_void_p], "rueda_device_announce_frees": [c_int]}
    for name, arguments in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = c_int, arguments
    return library


LIBRARY = _load()


def check(code):
    if code < 0:
        raise DeviceError(code, (LIBRARY.rueda_last_error() or b"").decode())


def tensor(name, source, target, shape, dtype):
    return Tensor(name.encode(), source, target, (c_int64 * len(shape))(*shape), len(shape), DTYPES[str(dtype)], 0)


def options(operator, prescale=1.0, postscale=1.0):
    return ReduceOptions(ctypes.sizeof(ReduceOptions), operator, prescale, postscale, 0, 0)


def allreduce_async(name, source, target, shape, dtype, operator=SUM, stream=NO_STREAM, scales=(1.0, 1.0)):
    handle = c_uint64()
    check(LIBRARY.rueda_device_allreduce_async(byref(tensor(name, source, target, shape, dtype)),
                                               byref(options(operator, *scales)), stream, byref(handle)))
    return handle.value


def grouped_async(name, tensors, operator=SUM, stream=NO_STREAM):
    handle = c_uint64()
    check(LIBRARY.rueda_device_grouped_allreduce_async(name.encode(), (Tensor * len(tensors))(*tensors), len(tensors),
                                                       byref(options(operator)), stream, byref(handle)))
    return handle.value


def broadcast_async(name, source, target, shape, dtype, root, stream=NO_STREAM):
    handle = c_uint64()
    check(LIBRARY.rueda_device_broadcast_async(byref(tensor(name, source, target, shape, dtype)), root, stream,
                                               byref(handle)))
    return handle.value


def wait_on(stream, handle):
    check(LIBRARY.rueda_device_wait(handle, stream))


def wait(handle, timeout_ms=30_000):
    result = Result()
    check(LIBRARY.rueda_wait(handle, timeout_ms, byref(result)))
    return result


def is_done(handle):
    """Returns whether the operation has ended, and leaves it as it is."""
    done = c_int()
    check(LIBRARY.rueda_test(handle, byref(done)))
    return done.value == 1


stats = rueda.device_stats
