"""Gives PyTorch's tensors in the memory of a GPU: of a fake one, so that rueda.torch and rueda.distributed take them for CUDA's,
while to PyTorch they are ordinary ones with which the CPU computes; or, with RUEDA_TEST_GPU=cuda, CUDA's."""

import ctypes
import os
from ctypes import c_uint64, c_void_p

import torch
from device_support import Gate, Gpu
from rueda._torch_common import _device


class RealCuda(_device.Cuda):
    """Uses CUDA; `stream` is the current one."""

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


class FakeCuda(_device.Cuda):
    """Takes the place of CUDA from its making on."""

    def __init__(self):
        self.gpu = Gpu()
        self.stream = self.gpu.stream()
        self.gate = Gate(self.gpu)
        self._where = ctypes.CDLL(self.gpu.library_path).rueda_fake_host_memory
        self._where.restype, self._where.argtypes = c_void_p, [c_uint64]
        self._blocks = []  # (where the CPU has them, bytes, where the GPU has them)
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
        on_device = self.gpu.allocate(size)
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

    def _block_of(self, tensor):
        address = tensor.data_ptr()
        return next((block for block in self._blocks if block[0] <= address < block[0] + block[1]), None)


CUDA = RealCuda() if os.environ.get("RUEDA_TEST_GPU") == "cuda" else FakeCuda()
