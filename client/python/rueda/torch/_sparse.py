"""Reduces sparse tensors: their indices and values are gathered, and entries that occur twice are added up by whoever uses the
result."""

from __future__ import annotations

from typing import Any, Callable, Optional

import torch

from .._core import _parts
from .._core._operations import Average, Sum
from .._core._process_sets import ProcessSet, global_process_set, id_of
from . import _ops


class SparseHandle:
    """A handle whose call waits and returns the result; synchronize() does so, too."""

    def __init__(self, handles: "tuple[int, int]", make: Callable[[Any, Any], torch.Tensor]) -> None:
        self._handles, self._make = handles, make

    def poll(self) -> bool:
        return all(_ops.poll(handle) for handle in self._handles)

    def __call__(self) -> torch.Tensor:
        indices, values = (_ops.synchronize(handle) for handle in self._handles)
        return self._make(indices, values)


def sparse_allreduce_async(tensor: torch.Tensor, name: Optional[str], op: int,
                           process_set: ProcessSet = global_process_set) -> SparseHandle:
    """Starts adding up or averaging a sparse COO tensor over all ranks.

    Args:
        tensor: a sparse COO tensor.
        name: the same on all ranks.
        op: Sum or Average.
        process_set: the ranks that take part.

    Returns:
        A SparseHandle, whose result is not coalesced.
    """
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.sparse_coo:
        raise ValueError("tensor must be a sparse COO tensor; use allreduce_async for dense ones")
    if op not in (Sum, Average):
        raise ValueError("sparse tensors are reduced by Sum or Average only")
    rows = tensor._indices().t().contiguous()
    values = tensor._values()
    handles = (_ops.allgather_async(rows, None if name is None else f"{name}.indices", process_set),
               _ops.allgather_async(values, None if name is None else f"{name}.values", process_set))
    _, size = _parts.place_in(id_of(process_set))
    shape = tensor.size()

    def make(indices: torch.Tensor, gathered: torch.Tensor) -> torch.Tensor:
        return torch.sparse_coo_tensor(indices.t(), gathered / size if op == Average else gathered, shape)

    return SparseHandle(handles, make)
