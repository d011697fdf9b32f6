"""Puts DDP's buckets into memory that the daemon reads and writes where it is, from their allocation on.

DDP's reducer allocates them in C++, and a process group in Python has no way to influence that (decision 54). So
torch.distributed.Reducer, of which DDP makes its reducer, is replaced by a class of this module: while the original makes or
remakes buckets for a group of Rueda's, the memory that it asks PyTorch for comes from the arena. Reducers of other groups stay as
they were."""

from __future__ import annotations

import contextlib
import math
import warnings
from typing import Any, Callable, ContextManager, Dict, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from .._core._errors import RuedaError
from .._torch_common._tensors import result_of
from ._backend import ProcessGroupRueda


def install() -> None:
    """Replaces the class. Once a process is enough, and more than once does no harm."""
    if not issubclass(dist.Reducer, _ArenaReducer):
        dist.Reducer = _ArenaReducer


class _ArenaReducer(dist.Reducer):  # type: ignore[misc]
    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._is_ours = any(isinstance(one, ProcessGroupRueda) for one in (*arguments, *named.values()))
        with self._allocating():
            super().__init__(*arguments, **named)

    def _rebuild_buckets(self) -> Any:
        """Remakes the buckets after the first step, in the order in which gradients came. DDP asks for it before every step, and
        once is enough."""
        with self._allocating():
            return super()._rebuild_buckets()

    def _allocating(self) -> ContextManager[Any]:
        here: ContextManager[Any] = _BucketsInArena()
        return here if self._is_ours else contextlib.nullcontext()


class _BucketsInArena(TorchDispatchMode):  # type: ignore[misc]
    """Takes this thread's large flat tensors of floating-point numbers from the arena while it is on."""

    def __torch_dispatch__(self, function: Callable[..., Any], types: Any, arguments: Tuple[Any, ...] = (),
                           named: Optional[Dict[str, Any]] = None) -> Any:
        named = named or {}
        if function is torch.ops.aten.empty.memory_format and _is_bucket(arguments[0], named):
            # A large block that is given back teaches glibc to keep blocks of up to that size (mallopt(3), dynamic mmap
            # threshold). Buckets that DDP remakes do so; without them the backward pass's own tensors would be mapped and
            # cleared anew in each step: 7 % of a step of ResNet-50 with pictures of 32 x 32. Nothing of it is touched.
            function(*arguments, **named)
            try:
                return result_of(arguments[0], named["dtype"])
            except RuedaError as error:
                warnings.warn(f"a bucket of DDP is not in shared memory, and is copied there and back in each step: {error}",
                              RuntimeWarning, stacklevel=2)
        return function(*arguments, **named)


def _is_bucket(shape: Sequence[int], named: Dict[str, Any]) -> bool:
    dtype, device = named.get("dtype"), named.get("device")
    return (len(shape) == 1 and math.prod(shape) > 0 and isinstance(dtype, torch.dtype)
            and (dtype.is_floating_point or dtype.is_complex)
            and (device is None or torch.device(device).type == "cpu") and not named.get("pin_memory"))
