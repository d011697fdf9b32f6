"""Has Python functions told of the ends of librueda's operations (rueda_then). Thread-safe.

The functions run in a thread of librueda's, which takes the interpreter's lock for them. Before the interpreter ends they are taken
back: a thread that is not Python's must not enter it then."""

from __future__ import annotations

import atexit
import itertools
import os
import threading
from typing import Any, Callable, Dict

from . import _library
from ._library import check

Told = Callable[[int, str], None]
ToldOfValue = Callable[[int, str, int], None]

_told: Dict[int, ToldOfValue] = {}  # by the number that librueda is given
_numbers = itertools.count(1)
_is_over = False
_registering = threading.Lock()  # is held while librueda is given a callback


def _on_end(_handle: int, code: int, result: Any, number: int) -> None:
    told = _told.pop(number)
    told(code, _library.last_error() if code < 0 else "", int(result.contents.value))


_callback = _library.Callback(_on_end)


def call_when_ended(handle: int, told: Told) -> bool:
    """Has told(code, text) called when the operation has ended, in place of rueda_wait. `code` is rueda_wait's, and `text` the
    sentence of an error. `told` delays all others, so it does next to nothing, and must not wait for anything.

    Returns:
        False if the interpreter is about to end: nobody is told any more, and the handle may be waited for.

    Raises:
        RuedaError: librueda does not know the handle, or has no thread for this.
    """
    return call_with_value(handle, lambda code, text, _: told(code, text))


def call_with_value(handle: int, told: ToldOfValue) -> bool:
    """Is call_when_ended(), but that told(code, text, value) is called with the value of rueda_result, too."""
    number = next(_numbers)
    with _registering:
        if _is_over:
            return False
        _told[number] = told
        try:
            check(_library.load().rueda_then(handle, _callback, number))
        except BaseException:
            _told.pop(number, None)
            raise
    return True


def is_over() -> bool:
    """Returns whether nobody is told any more: handles that have not been told of may be waited for."""
    return _is_over


# Runs before the interpreter begins to end, and returns when no callback is in it.
def _take_back() -> None:
    global _is_over
    with _registering:
        _is_over = True
    library = _library.loaded()
    if library is not None:
        library.rueda_then_take_back(_callback)
    _told.clear()


# Another thread may have held the lock; in a child librueda refuses all calls.
def _after_fork() -> None:
    global _registering
    _registering = threading.Lock()


atexit.register(_take_back)
os.register_at_fork(after_in_child=_after_fork)
