"""Handles tensors in a GPU's memory: where they are, and the stream that they are on.

All-reduces and broadcasts of them are made by the GPU worker (rueda_device_allreduce_async and so on). Other collectives have no
form for device memory and go through the host's memory, with a warning."""

from __future__ import annotations

import logging
import warnings
from typing import Any, Iterable, List, Optional, Set, Tuple

import torch

from .._core import _library, _stream_pending
from .._core._switches import is_switched_on

# The library that has PyTorch's allocator of CUDA memory, or None where this PyTorch has no CUDA.
ALLOCATOR: Optional[str] = "libc10_cuda.so" if torch.version.cuda else None

_LOG = logging.getLogger("rueda")


class Cuda:
    """Handles PyTorch's CUDA tensors. No method waits for the device except to_host()."""

    def address_of(self, tensor: torch.Tensor) -> int:
        return int(tensor.data_ptr())

    def stream_of(self, tensor: torch.Tensor) -> int:
        """Returns the current stream of this thread on the tensor's device, as a CUstream."""
        return int(torch.cuda.current_stream(tensor.device).cuda_stream)

    def empty_like(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(tensor, memory_format=torch.contiguous_format)

    def to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().cpu()

    def from_host(self, tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """Returns a new tensor on `like`'s device."""
        return tensor.to(like.device)

    def write(self, tensor: torch.Tensor, host: torch.Tensor) -> None:
        tensor.detach().copy_(host)


_CUDA = Cuda()
_warned: Set[str] = set()


def watch_frees() -> None:
    """Lets librueda see which segments PyTorch's allocator allocates and frees, so that it does not ask the driver at each use
    whether they are still the same (rueda_device_watch_frees). Where that cannot be, or with RUEDA_DEVICE_WATCH_FREES=0, the driver
    is asked. A second call does nothing.

    Raises:
        ValueError: the variable is neither 0 nor 1.
    """
    is_wanted = is_switched_on("RUEDA_DEVICE_WATCH_FREES", True)
    if ALLOCATOR is not None and is_wanted and _library.load().rueda_device_watch_frees(ALLOCATOR.encode()) < 0:
        _LOG.info("PyTorch's allocator is not watched, and the driver is asked at each use of CUDA memory: %s",
                  _library.last_error())


def find(tensor: torch.Tensor) -> Optional[Cuda]:
    """Returns the kind of memory of the tensor, or None if the tensor is in the host's memory."""
    return _CUDA if tensor.is_cuda else None


def address_of(tensor: torch.Tensor) -> int:
    device = find(tensor)
    return int(tensor.data_ptr()) if device is None else device.address_of(tensor)


def of_all(tensors: Iterable[torch.Tensor]) -> Optional[Cuda]:
    """Returns the kind of memory of tensors that are reduced together.

    Raises:
        ValueError: they are not all in memory of one kind.
    """
    found: List[Tuple[Optional[Cuda], torch.device]] = [(find(tensor), tensor.device) for tensor in tensors]
    if any(one != found[0] for one in found):
        devices = sorted({str(device) for _, device in found})
        raise ValueError(f"tensors of one group are on {' and '.join(devices)}; all must be on one device")
    return found[0][0] if found else None


def on_host(tensor: torch.Tensor, what: str) -> torch.Tensor:
    """Returns the tensor, or a copy in the host's memory. `what` is the collective's name, for the warning."""
    if find(tensor) is not None:
        warn_of_host(what)
    return quietly_on_host(tensor)


def quietly_on_host(tensor: torch.Tensor) -> torch.Tensor:
    """Does the same without a warning, for what is small or sent once."""
    device = find(tensor)
    return tensor if device is None else device.to_host(tensor)


def back(result: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Moves a result in the host's memory to where `like` is."""
    device = find(like)
    return result if device is None else device.from_host(result, like)


def warn_of_host(what: str) -> None:
    """Warns once for each collective."""
    if what not in _warned:
        _warned.add(what)
        warnings.warn(f"{what} of tensors in a GPU's memory goes through the host's memory; all-reduces (but for Adasum) and "
                      "broadcasts do not", RuntimeWarning, stacklevel=4)


class OnStream:
    """Makes the caller's stream wait for an operation, and not the host."""

    def __init__(self, device: Cuda, tensor: torch.Tensor, memory: Any) -> None:
        self._device, self._tensor, self._memory = device, tensor, memory

    def __call__(self, handle: int) -> None:
        _stream_pending.leave_pending_on(self._device.stream_of(self._tensor), handle, self._memory)
