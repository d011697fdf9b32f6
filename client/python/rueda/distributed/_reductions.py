"""Translates PyTorch's reductions into those of the daemons."""

from __future__ import annotations

from typing import Any, Callable, Optional, Tuple

import torch
import torch.distributed as dist

from .._core._operations import Average, Max, Min, Product, ReduceOp, Sum

_OPS = [(dist.ReduceOp.SUM, Sum), (dist.ReduceOp.AVG, Average), (dist.ReduceOp.MIN, Min), (dist.ReduceOp.MAX, Max),
        (dist.ReduceOp.PRODUCT, Product)]
_BITWISE = [(dist.ReduceOp.BAND, torch.bitwise_and), (dist.ReduceOp.BOR, torch.bitwise_or),
            (dist.ReduceOp.BXOR, torch.bitwise_xor)]
_PREMUL_SUM = getattr(dist.ReduceOp, "PREMUL_SUM", None)

Bitwise = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def bitwise_of(op: Any) -> "Optional[Tuple[Bitwise, int]]":
    """Returns the function of a reduction that the daemons do not have, and its number among those: contributions are gathered,
    and each rank combines them. Returns None if the daemons have the reduction."""
    return next(((function, i) for i, (theirs, function) in enumerate(_BITWISE) if op == theirs), None)


def scale_of(op: Any) -> float:
    """Returns the factor by which each rank's tensor is multiplied before the reduction: that of PREMUL_SUM, or 1.

    Raises:
        ValueError: PREMUL_SUM has no factor, or one of several elements.
    """
    if _PREMUL_SUM is None or op != _PREMUL_SUM:
        return 1.0
    # PyTorch tells Python the factor when it pickles the reduction. In 1.13 it does not pickle it.
    state = getattr(op, "__getstate__", lambda: None)()
    factor = state[1] if isinstance(state, tuple) else None
    if factor is None or isinstance(factor, torch.Tensor) and factor.numel() != 1:
        raise ValueError("PREMUL_SUM needs one factor, the same on all ranks, as torch.distributed._make_nccl_premul_sum(0.5) has it, and PyTorch 2; "
                         "with 1.13 multiply the tensor, and use SUM")
    return float(factor)


def op_of(op: Any) -> ReduceOp:
    """Returns rueda.h's number of a reduction. PREMUL_SUM is a sum, with the factor that scale_of() returns.

    Raises:
        ValueError: Rueda does not have the reduction.
    """
    for theirs, ours in _OPS:
        if op == theirs:
            return ours
    if _PREMUL_SUM is not None and op == _PREMUL_SUM:
        return Sum
    raise ValueError(f"reduction {op} is not there; use SUM, PREMUL_SUM, AVG, MIN, MAX, PRODUCT, BAND, BOR or BXOR")
