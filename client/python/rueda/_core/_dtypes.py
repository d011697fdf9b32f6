"""Translates NumPy's dtypes into those of rueda.h."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

# The numbers of rueda.h's rueda_dtype by NumPy's names. ml_dtypes registers "bfloat16".
CODES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3, "int32": 4, "int64": 5,
         "int8": 6, "uint8": 7, "bool": 8, "int16": 9, "uint16": 10, "uint32": 11, "uint64": 12,
         "complex64": 13, "complex128": 14}

# The dtypes that values can be rounded to where they cross the network: rueda.h's rueda_wire_dtype.
WIRE_CODES = {"float16": 1, "bfloat16": 2}


def wire_code_of(wire_dtype: Any) -> int:
    """Returns rueda.h's number for a wire dtype, given by its name or NumPy's dtype. None means that nothing is rounded."""
    if wire_dtype is None:
        return 0
    name = getattr(wire_dtype, "name", None) or getattr(wire_dtype, "__name__", None) or str(wire_dtype)
    if name not in WIRE_CODES:
        raise ValueError(f"wire_dtype={wire_dtype!r} is unknown; use \"float16\" or \"bfloat16\", or None, "
                         "which rounds nothing")
    return WIRE_CODES[name]


def code_of(array: np.ndarray, dtype: Optional[str] = None) -> int:
    """Returns rueda.h's number for an array's elements.

    Args:
        array: the array.
        dtype: "bfloat16" reads a uint16 array as the bits of bfloat16 values; without it the values are integers.

    Raises:
        TypeError: arrays of this dtype cannot be reduced; the text has the remedy.
    """
    own = array.dtype
    if not own.isnative:
        raise TypeError(f"an array of dtype {own} has the other byte order; convert it with "
                        "array.astype(array.dtype.newbyteorder('='))")
    if dtype is not None:
        wanted = getattr(dtype, "name", None) or str(dtype)
        if wanted == own.name and wanted in CODES:
            return CODES[wanted]
        if wanted == "bfloat16" and own == np.uint16:
            return CODES["bfloat16"]
        raise TypeError(f"dtype={wanted!r} does not fit an array of dtype {own}; only a uint16 array may "
                        "be given another one, \"bfloat16\"")
    code = CODES.get(own.name)
    if code is None:
        raise TypeError(f"arrays of dtype {own} cannot be reduced; use one of {', '.join(CODES)}")
    return code


def as_array(value: Any, what: str = "tensor") -> np.ndarray:
    """Returns a plain ndarray over the same memory. NumPy's scalars become 0-dimensional arrays."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{what} is a masked array; pass array.filled(value)")
    if not isinstance(value, (np.ndarray, np.generic)):
        raise TypeError(f"{what} must be a NumPy array, not {type(value).__name__}; use numpy.asarray")
    array = np.asarray(value)
    if array.ndim > 8:
        raise ValueError(f"{what} has {array.ndim} dimensions; 0 to 8 are allowed")
    return array
