"""Makes submissions whose refusal is Horovod's error."""

from __future__ import annotations

import ctypes
from typing import Any

from .._core import _library
from .._core._library import byref
from ._errors import settle_left, submission_error


def submit(function: str, *arguments: Any) -> int:
    """Calls one of librueda's asynchronous functions and returns its handle."""
    handle = ctypes.c_uint64()
    code = getattr(_library.load(), function)(*arguments, byref(handle))
    if code < 0:
        raise submission_error(code, _library.last_error())
    return handle.value


def submit_on_device(function: str, *arguments: Any) -> int:
    """Does the same as submit(), with one of the functions for device memory.

    Raises:
        HorovodInternalError: the submission was refused, or an operation that a stream was left to wait for has failed since.
    """
    settle_left()
    return submit(function, *arguments)
