"""Interprets `op=` and the old `average=`."""

from __future__ import annotations

from typing import Any, Optional

from .._core._operations import Average, Sum


def chosen_op(op: Optional[Any], average: Optional[bool]) -> int:
    """Returns op, or what the deprecated `average` stands for, or Average without either."""
    if op is not None and average is not None:
        raise ValueError("op supersedes average; give only one of the two")
    if op is None:
        return Sum if average is False else Average
    return int(op)


def require_linear(op: int) -> None:
    """Raises NotImplementedError for the ops whose gradient is not the reduced gradient."""
    if op not in (Sum, Average):
        raise NotImplementedError("only Sum and Average pass gradients on; stop the gradient before the other ops")


__all__ = ["chosen_op", "require_linear"]
