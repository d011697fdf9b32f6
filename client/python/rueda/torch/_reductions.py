"""Makes librueda's options of the arguments of a reduction."""

from __future__ import annotations

from typing import Optional

from .._core._library import ReduceOptions
from .._core._operations import Adasum, Average, Max, Min, Product, Sum, make_options
from ..common.reductions import chosen_op

__all__ = ["Adasum", "Average", "Max", "Min", "Product", "Sum", "chosen_op", "options_of"]


def options_of(op: int, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
               wire_dtype: Optional[str] = None) -> ReduceOptions:
    return make_options(int(op), float(prescale_factor), float(postscale_factor), wire_dtype=wire_dtype)
