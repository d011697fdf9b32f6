"""Knows tensors that are reduced in place again, step after step, under the same name: what librueda is told of each is put
together once. Entries are never changed, so any thread may use them."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Optional, Tuple

import torch

from .._core import _library
from .._core._library import ReduceOptions, Tensor, byref
from .._core._process_sets import ProcessSet

_MOST = 16384  # tensors; when there are more, all are forgotten, and learned again

Key = Tuple[str, Optional[int]]  # the caller's name, and the process set


class Known(NamedTuple):
    """Says how to submit a tensor once more, and the conditions under which that is right."""

    submit: Any
    told: Any  # pointers for librueda, which keep alive what they point to
    options: Any
    chosen: Tuple[str, int]  # the name that the daemon knows, and the process set
    address: int
    shape: torch.Size
    dtype: torch.dtype
    average: Optional[bool]
    op: Optional[int]
    prescale_factor: float
    postscale_factor: float
    process_set: ProcessSet
    memory: Any


_known: Dict[Key, Known] = {}


def reset() -> None:
    """Forgets all tensors. It is called by init()."""
    _known.clear()


def find(tensor: Any, average: Optional[bool], name: str, op: Optional[int], prescale_factor: float,
         postscale_factor: float, process_set: ProcessSet) -> Optional[Known]:
    """Returns the entry of a tensor, or None unless every argument of this call equals those of the earlier one."""
    try:
        known = _known.get((name, process_set.process_set_id))
        # op and average are compared by identity, because 0 == False.
        if (known is not None and isinstance(tensor, torch.Tensor) and tensor.data_ptr() == known.address
                and tensor.shape == known.shape and tensor.dtype is known.dtype and tensor.is_contiguous()
                and tensor.is_cpu and not tensor.is_neg() and op is known.op and average is known.average
                and prescale_factor == known.prescale_factor and postscale_factor == known.postscale_factor
                and process_set is known.process_set):
            return known
    except (AttributeError, RuntimeError, TypeError, ValueError):
        pass  # the full way reports what is wrong with the tensor
    return None


def remember(tensor: torch.Tensor, average: Optional[bool], name: str, op: Optional[int], options: ReduceOptions,
             process_set: ProcessSet, chosen: Tuple[str, int], told: Tensor, memory: Any) -> None:
    """Remembers a contiguous tensor that was reduced in place."""
    address = tensor.data_ptr()
    if not address or not isinstance(process_set, ProcessSet) or not isinstance(name, str):
        return
    if len(_known) >= _MOST:
        _known.clear()
    _known[name, process_set.process_set_id] = Known(
        _library.load().rueda_allreduce_async, byref(told), byref(options), chosen, address, tensor.shape, tensor.dtype,
        average, op, options.prescale, options.postscale, process_set, memory)
