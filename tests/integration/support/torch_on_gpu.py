"""Gives PyTorch's tensors in the memory of a GPU: of a fake one, so that rueda.torch and rueda.distributed take them for CUDA's,
while to PyTorch they are ordinary ones with which the CPU computes; or, with RUEDA_TEST_GPU=cuda, CUDA's."""

import ctypes
import os
from ctypes import c_size_t, c_uint64, c_void_p

import torch
from device_support import Gate, Gpu
from rueda._torch_common import _device


class RealCuda(_device.Cuda):
    """Uses CUDA; `stream` is the current one."""

    SEGMENT = 6_000_000  # elements of float32 for which PyTorch makes a segment of their own

    def __init__(self):
        torch.cuda.init()
        self.gpu = Gpu()
        self.gate = Gate(self.gpu)

    @property
    def stream(self):
        return c_void_p(torch.cuda.current_stream().cuda_stream)

    def find(self, tensor):
        return _device.find(tensor)

    def put(self, tensor):
        """Returns a copy in the GPU's memory."""
        return tensor.detach().clone().cuda()

    def synchronize(self):
        torch.cuda.current_stream().synchronize()

    def free_segments(self, tensor):
        """Frees what the tensor, to which nobody else may refer, lies in."""
        tensor.set_()
        torch.cuda.empty_cache()

    def has_watched_segments(self):
        return "expandable" not in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")


class FakeCuda(_device.Cuda):
    """Takes the place of CUDA from its making on."""

    SEGMENT = 5_000  # any number

    def __init__(self):
        self.gpu = Gpu()
        self.stream = self.gpu.stream()
        self.gate = Gate(self.gpu)
        self._where = ctypes.CDLL(self.gpu.library_path).rueda_fake_host_memory
        self._where.restype, self._where.argtypes = c_void_p, [c_uint64]
        self._blocks = []  # (where the CPU has them, bytes, where the GPU has them)
        _device.ALLOCATOR = "librueda_fake_allocator_now.so"
        # PyTorch 2 from PyPI has loaded NVIDIA's runtime, for all libraries that come after it. The allocator's own is to come first.
        allocator = ctypes.CDLL(os.path.join(os.path.dirname(self.gpu.library_path), _device.ALLOCATOR),
                                mode=os.RTLD_NOW | os.RTLD_DEEPBIND)
        self._allocate, self._free = allocator.rueda_fake_segment_alloc, allocator.rueda_fake_segment_free
        self._allocate.restype, self._allocate.argtypes = c_uint64, [c_size_t]
        self._free.argtypes = [c_uint64]
        _device.find = self.find

    def find(self, tensor):
        return self if self._block_of(tensor) is not None else None

    def address_of(self, tensor):
        at, _, on_device = self._block_of(tensor)
        return on_device + tensor.data_ptr() - at

    def stream_of(self, tensor):
        return self.stream.value

    def empty_like(self, tensor):
        size = max(tensor.numel() * tensor.element_size(), 1)
        on_device = self._allocate(size)
        at = self._where(on_device)
        self._blocks.append((at, size, on_device))
        memory = (ctypes.c_byte * size).from_address(at)
        flat = torch.frombuffer(memory, dtype=torch.uint8, count=tensor.numel() * tensor.element_size())
        return flat.view(tensor.dtype).view(tensor.shape) if tensor.numel() else tensor.clone()

    def to_host(self, tensor):
        self.synchronize()
        return tensor.detach().clone()

    def from_host(self, tensor, like):
        return self.put(tensor)

    def put(self, tensor):
        result = self.empty_like(tensor)
        result.copy_(tensor)
        return result

    def synchronize(self):
        self.gpu.synchronize(self.stream)

    def free_segments(self, tensor):
        """Frees what the tensor lies in. Nobody may use it any more."""
        self.synchronize()
        block = self._block_of(tensor)
        self._blocks.remove(block)
        assert self._free(block[2]) == 0

    def has_watched_segments(self):
        return os.environ.get("RUEDA_DEVICE_WATCH_FREES") != "0"

    def _block_of(self, tensor):
        address = tensor.data_ptr()
        return next((block for block in self._blocks if block[0] <= address < block[0] + block[1]), None)


CUDA = RealCuda() if os.environ.get("RUEDA_TEST_GPU") == "cuda" else FakeCuda()
