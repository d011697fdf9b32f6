"""Interprets `op=` and the old `average=`."""

from __future__ import annotations

from typing import Any, Optional

from .._core._library import ReduceOptions
from .._core._operations import Adasum, Average, Max, Min, Product, Sum, make_options

__all__ = ["Adasum", "Average", "Max", "Min", "Product", "Sum", "chosen_op", "options_of"]


def chosen_op(op: Optional[Any], average: Optional[bool]) -> int:
    """Returns op, or what the deprecated `average` stands for, or Average without either."""
    if op is not None and average is not None:
        raise ValueError("op supersedes average; give only one of the two")
    if op is None:
        return Sum if average is False else Average
    return int(op)


def options_of(op: int, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
               wire_dtype: Optional[str] = None) -> ReduceOptions:
    return make_options(int(op), float(prescale_factor), float(postscale_factor), wire_dtype=wire_dtype)
