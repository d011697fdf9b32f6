"""Reduces sparse tensors: indices and values of all ranks are gathered, and each rank adds them up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from ._backend import ProcessGroupRueda


_HINT = "; an all_reduce of sparse tensors begins with an all-gather: give all_reduce sparse tensors on all ranks, or on none"


def allreduce_sparse(group: "ProcessGroupRueda", tensors: List[torch.Tensor], op: Any) -> List[torch.Tensor]:
    """Sums sparse COO tensors in place, coalesced. It waits for the other ranks.

    Raises:
        ValueError: the reduction is not SUM, or the tensors' shapes or numbers of sparse dimensions differ between ranks.
    """
    if op != dist.ReduceOp.SUM:
        raise ValueError(f"sparse tensors are reduced by SUM alone, not {op}; use tensor.to_dense()")
    for tensor in tensors:
        own = tensor.detach().coalesce()
        _check_alike(group, own)
        indices, values = _gathered(group, own.indices().t().contiguous()), _gathered(group, own.values())
        with torch.no_grad():
            tensor.copy_(torch.sparse_coo_tensor(indices.t(), values, own.shape).coalesce())
    return tensors


def _check_alike(group: "ProcessGroupRueda", tensor: torch.Tensor) -> None:
    own = torch.tensor([tensor.sparse_dim(), *tensor.shape], dtype=torch.int64)
    for rank, other in enumerate(_gathered(group, own).split(own.numel())):
        if not torch.equal(other, own):
            raise ValueError(f"the sparse tensor has {own[0]} sparse dimensions and shape {own[1:].tolist()}, and that of "
                             f"rank {rank} {other[0]} and {other[1:].tolist()}")


def _gathered(group: "ProcessGroupRueda", rows: torch.Tensor) -> torch.Tensor:
    counts = torch.empty(group.size(), dtype=torch.int64)
    group._gather_into(counts, torch.tensor([rows.shape[0]]), None, list, "all_reduce", _HINT).wait()
    outputs = [torch.empty((int(count), *rows.shape[1:]), dtype=rows.dtype) for count in counts]
    group.allgather([outputs], [rows.contiguous()]).wait()
    return torch.cat(outputs)
