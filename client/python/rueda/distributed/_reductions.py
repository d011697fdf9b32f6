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

Bitwise = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def bitwise_of(op: Any) -> "Optional[Tuple[Bitwise, int]]":
    """Returns the function of a reduction that the daemons do not have, and its number among those: contributions are gathered,
    and each rank combines them. Returns None if the daemons have the reduction."""
    return next(((function, i) for i, (theirs, function) in enumerate(_BITWISE) if op == theirs), None)


def op_of(op: Any) -> ReduceOp:
    """Returns rueda.h's number of a reduction.

    Raises:
        ValueError: Rueda does not have the reduction.
    """
    for theirs, ours in _OPS:
        if op == theirs:
            return ours
    raise ValueError(f"reduction {op} is not there; use SUM, AVG, MIN, MAX, PRODUCT, BAND, BOR or BXOR")
