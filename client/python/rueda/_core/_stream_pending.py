"""Keeps operations in device memory for whose end a stream waits, and the host does not (rueda_device_wait).

Each keeps its memory until it has ended. Only then is it known how it ended: the error goes to whoever begins the next such
operation, or waits for all of them (finish()). Thread-safe."""

from __future__ import annotations

import ctypes
import math
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, Optional, Tuple

from . import _library
from ._errors import RuedaError, error_for
from ._library import byref, check

_SIGNAL_SLICE_MS = 500  # a waiting thread wakes this often, for Ctrl-C

_pending: Deque[Tuple[int, Any]] = deque()  # librueda's handles, oldest first, with the memory that must live as long
_lock = threading.RLock()


def reset() -> None:
    """Forgets all operations. It is called at init() and after shutdown(): handles of another session do not belong to this one.
    """
    with _lock:
        _pending.clear()


def leave_pending_on(stream: int, handle: int, memory: Any) -> None:
    """Makes the stream's later work wait for the operation.

    Raises:
        RuedaError: the operation has failed by now, or the stream could not be told; nothing is under way then.
    """
    library = _library.load()
    with _lock:
        if _is_done(handle):
            check(library.rueda_wait(handle, -1, None))
            return
        code = library.rueda_device_wait(handle, stream)
        if code < 0:  # the stream cannot wait, so the host does
            error = error_for(code, _library.last_error())
            library.rueda_wait(handle, -1, None)
            raise error
        _pending.append((handle, memory))


def settle() -> None:
    """Lets go of the operations that have ended.

    Raises:
        RuedaError: some of these failed; the error is that of the first.
    """
    with _lock:
        error = _end_while(lambda handle: _is_done(handle))
    if error is not None:
        raise error


def finish(timeout: Optional[float] = None) -> None:
    """Waits for all operations, `timeout` seconds at most.

    Raises:
        RuedaError: an operation failed.
    """
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    with _lock:
        error = _end_while(lambda handle: _is_done_by(handle, deadline))
    if error is not None:
        raise error


def _end_while(may_end: Callable[[int], bool]) -> Optional[RuedaError]:
    error: Optional[RuedaError] = None
    while _pending and may_end(_pending[0][0]):
        handle, _ = _pending.popleft()
        code = _library.load().rueda_wait(handle, -1, None)  # returns at once, because the operation has ended
        if code < 0 and error is None:
            error = error_for(code, _library.last_error())
    return error


def _is_done_by(handle: int, deadline: float) -> bool:
    index = ctypes.c_size_t()
    array = (ctypes.c_uint64 * 1)(handle)
    while not _is_done(handle):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return False
        _library.load().rueda_wait_any(array, 1, int(min(left_s * 1e3 + 1, _SIGNAL_SLICE_MS)), byref(index))
    return True


def _is_done(handle: int) -> bool:
    done = ctypes.c_int()
    check(_library.load().rueda_test(handle, byref(done)))
    return done.value != 0
