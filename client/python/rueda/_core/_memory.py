"""Makes arrays that the daemon reads and writes where they are."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any, Sequence, Union

import numpy as np

from . import _library
from ._errors import RESOURCE_EXHAUSTED, error_for


def empty(shape: Union[int, Sequence[int]], dtype: Any = np.float32) -> np.ndarray:
    """Returns an array like numpy.empty()'s in memory that is shared with the node's daemon, so that reducing it copies nothing.
    Thread-safe.

    The memory lives as long as the array or a view of it, also after shutdown(), when it is ordinary memory.

    Args:
        shape: an int or a sequence of ints.
        dtype: any NumPy dtype without Python objects.

    Returns:
        The array, whose values are undefined.

    Raises:
        RuedaError: there is no memory, or init() has not been called.
    """
    kind = np.dtype(dtype)
    if kind.hasobject:
        raise TypeError(f"dtype {kind} holds Python objects, which cannot be shared with the daemon")
    dims = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    count = 1
    for dim in dims:
        if dim < 0:
            raise ValueError(f"negative dimension {dim} in shape {dims}")
        count *= int(dim)
    if count == 0:
        return np.empty(dims, kind)
    library = _library.load()
    address = library.rueda_alloc(count * kind.itemsize)
    if not address:
        message = _library.last_error()
        # Without a session every call reports that; otherwise memory was lacking.
        code = library.rueda_rank()
        raise error_for(code if code < 0 else RESOURCE_EXHAUSTED, message)
    memory: Any = (ctypes.c_byte * (count * kind.itemsize)).from_address(address)
    # Views keep `memory` alive as their base; at the end of the process nothing needs to be freed.
    weakref.finalize(memory, library.rueda_free, address).atexit = False
    array: np.ndarray = np.frombuffer(memory, dtype=kind).reshape(dims)
    return array
