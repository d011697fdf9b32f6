"""Gives librueda PyTorch's tensors: their addresses, shapes and dtypes."""

from __future__ import annotations

import ctypes
import math
from typing import Any, Callable, Optional, Sequence

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack

from .._core import _library
from .._core._dtypes import CODES
from .._core._errors import INVALID_ARGUMENT, error_for
from .._core._library import Tensor, byref
from .._core._memory import empty
from .._core._operations import Pending, register_pending
from . import _device

CODE_OF = {torch.float32: CODES["float32"], torch.float64: CODES["float64"], torch.float16: CODES["float16"],
           torch.bfloat16: CODES["bfloat16"], torch.int32: CODES["int32"], torch.int64: CODES["int64"],
           torch.int8: CODES["int8"], torch.uint8: CODES["uint8"], torch.bool: CODES["bool"], torch.int16: CODES["int16"],
           torch.complex64: CODES["complex64"], torch.complex128: CODES["complex128"],
           # PyTorch has these from 2.3 on.
           **{getattr(torch, name): CODES[name] for name in ("uint16", "uint32", "uint64") if hasattr(torch, name)}}
MOST_DIMENSIONS = 8

# A tensor of the arena's memory is released by DLPack's deleter, which needs no lock of Python's. After an exception in a hook of
# backward(), PyTorch 1.13 frees tensors when the process has ended Python, and whoever asks for the lock then hangs.
_CAPSULE_NAME = b"dltensor"
_capsule_of = ctypes.pythonapi.PyCapsule_New
_capsule_of.restype, _capsule_of.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

# A result of this size or more lives in the arena, with one copy instead of two. For smaller ones PyTorch's allocator is faster.
_ARENA_RESULT_BYTES = 64 * 1024


def check_tensor(tensor: Any, what: str = "tensor") -> None:
    """Raises an error for tensors that no collective takes."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{what} must be a torch.Tensor, not {type(tensor).__name__}")
    if tensor.layout != torch.strided:
        raise ValueError(f"{what} is sparse; use sparse_allreduce_async, or tensor.to_dense()")
    if tensor.device.type not in ("cpu", "cuda"):
        raise ValueError(f"{what} is on {tensor.device}; Rueda reduces tensors on the CPU and on CUDA: use tensor.cpu()")
    if tensor.dim() > MOST_DIMENSIONS:
        raise ValueError(f"{what} has {tensor.dim()} dimensions; 0 to {MOST_DIMENSIONS} are allowed")


def code_of(tensor: torch.Tensor) -> int:
    """Returns rueda.h's number for the elements of a tensor that is to be reduced."""
    code = CODE_OF.get(tensor.dtype)
    if code is None:
        names = ", ".join(str(dtype).partition(".")[2] for dtype in CODE_OF)
        raise ValueError(f"Tensor type {tensor.dtype} is not supported; use one of {names}")
    return code


def contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor, or a copy whose elements are in C order."""
    if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
        return tensor
    return tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def empty_in_arena(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Returns a tensor that the daemon reads and writes where it is. See rueda.empty()."""
    return tensor_of(memory_in_arena(shape, dtype), shape, dtype)


def memory_in_arena(shape: Sequence[int], dtype: torch.dtype) -> np.ndarray:
    """Returns the memory of such a tensor as bytes."""
    return empty(math.prod(shape) * torch.empty((), dtype=dtype).element_size(), np.uint8)


def tensor_of(memory: np.ndarray, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Returns a tensor of these bytes, which refers to them as long as it, or a view of it, lives."""
    if memory.nbytes == 0:
        return torch.empty(tuple(shape), dtype=dtype)
    managed = _library.load().rueda_dlpack(memory.ctypes.data, memory.nbytes)
    if not managed:
        raise error_for(INVALID_ARGUMENT, _library.last_error())
    return from_dlpack(_capsule_of(managed, _CAPSULE_NAME, None)).view(dtype).view(tuple(shape))


def is_shared(memory: np.ndarray) -> bool:
    """Returns whether there is a tensor of the memory, or a view of one."""
    return bool(_library.load().rueda_dlpack_count(memory.ctypes.data) > 0)


def result_of(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Returns memory for a result."""
    result = torch.empty((0,), dtype=dtype)
    if math.prod(shape) * result.element_size() >= _ARENA_RESULT_BYTES:
        return empty_in_arena(shape, dtype)
    return torch.empty(tuple(shape), dtype=dtype)


def as_moved(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a view of a tensor that is only sent, and not reduced: dtypes that the daemon does not know become bytes, with one
    more dimension."""
    if tensor.dtype in CODE_OF:
        return tensor
    return tensor.unsqueeze(-1).view(torch.uint8)


def dims_of(shape: Sequence[int]) -> Any:
    return (ctypes.c_int64 * max(len(shape), 1))(*shape)


def c_tensor(name: str, source: Optional[torch.Tensor], target: Optional[torch.Tensor], shape: Any, ndim: int,
             code: int, set_id: int) -> Tensor:
    return Tensor(name.encode(), 0 if source is None else _device.address_of(source),
                  0 if target is None else _device.address_of(target), shape, ndim, code, set_id)


def submit_async(function: str, *arguments: Any) -> int:
    """Calls one of librueda's asynchronous functions and returns its handle.

    Raises:
        RuedaError: the submission was refused.
    """
    handle = ctypes.c_uint64()
    code = getattr(_library.load(), function)(*arguments, byref(handle))
    if code < 0:
        raise error_for(code, _library.last_error())
    return handle.value


def register(handle: int, memory: Any, finish: Callable[[], Any],
             leave: Optional[Callable[[int], None]] = None) -> int:
    return register_pending(Pending([], handle=handle, finish=finish, memory=memory, leave=leave))
