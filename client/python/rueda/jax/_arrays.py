"""Turns JAX's arrays into what librueda and rueda's functions for NumPy take, and results back."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from .._core._dtypes import CODES

_MOST_DIMS = 7  # librueda takes eight, one of which carried() may add
AS_BYTES = -1  # the handlers' sign for elements that are carried as bytes (client/jax/handlers.cc)


def code_to_reduce(dtype: Any) -> int:
    """Returns rueda.h's number for a dtype whose elements are to be added up or compared.

    Raises:
        TypeError: librueda has no such dtype; the text has the remedy.
    """
    code = CODES.get(np.dtype(dtype).name)
    if code is None:
        raise TypeError(f"arrays of dtype {dtype} cannot be reduced; convert them with x.astype to one of {', '.join(CODES)}")
    return code


def code_to_carry(dtype: Any) -> int:
    """Returns rueda.h's number for a dtype whose elements are only carried, or AS_BYTES for one that librueda does not have.

    Raises:
        TypeError: an element is not a number of bytes.
    """
    code = CODES.get(np.dtype(dtype).name)
    if code is not None:
        return code
    if np.dtype(dtype).kind == "V" and np.dtype(dtype).name.lstrip("u") in ("int2", "int4", "float4_e2m1fn"):
        raise TypeError(f"arrays of dtype {dtype} have elements smaller than a byte; convert them with x.astype")
    return AS_BYTES


def host_array(value: Any) -> np.ndarray:
    """Returns the values as NumPy's array, which on a CPU is the same memory. Waits until they have been computed. More dimensions
    than librueda takes are joined."""
    array = np.asarray(value)
    if array.ndim <= _MOST_DIMS:
        return array
    kept = array.shape[:_MOST_DIMS - 1]
    return array.reshape((*kept, math.prod(array.shape[_MOST_DIMS - 1:])))


def carried(array: np.ndarray) -> np.ndarray:
    """Returns the array, or its bytes, with one dimension more, if librueda does not have its dtype."""
    if code_to_carry(array.dtype) != AS_BYTES:
        return array
    return np.ascontiguousarray(array).reshape((*array.shape, 1)).view(np.uint8)


def jax_array(result: np.ndarray, like: Any) -> Any:
    """Returns rueda's result as JAX's array, on the device of `like` and with its dtype and dimensions, but for the first. A large
    result is in memory of the arena, which JAX takes over without a copy on a CPU, and keeps alive."""
    dtype = np.dtype(like.dtype)
    shape = (result.shape[0], *like.shape[1:]) if like.ndim else ()
    result = (result if result.dtype == dtype else result.view(dtype)).reshape(shape)
    sharding = getattr(like, "sharding", None)
    return jax.device_put(result) if sharding is None else jax.device_put(result, sharding)
