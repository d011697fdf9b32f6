"""Makes names for collectives that were given none: Horovod's, such as allreduce.noname.1. They are counted in the order of the
calls, which all ranks make alike, and are used again, so that a job may make any number of calls."""

from __future__ import annotations

import threading
from typing import Dict, Tuple

# A function may have this many calls in flight in a process set; a further call waits for the first of them.
MOST = 1024
# The same limit for groups, which is lower because a group has as many names as tensors.
MOST_GROUPS = 64

_calls: "Dict[Tuple[str, int], int]" = {}  # by function and process set
_handles: "Dict[Tuple[str, int], int]" = {}  # the last one, by name and process set
_lock = threading.Lock()


def reset() -> None:
    """Makes all names count from 1 again. It is called by init() and shutdown(), and when all ranks have joined."""
    with _lock:
        _calls.clear()
        _handles.clear()


def forget_set(set_id: int) -> None:
    """Forgets the names of a new process set, which may have the number of an older set, whose ranks have counted differently."""
    with _lock:
        for known in (_calls, _handles):
            for key in [key for key in known if key[1] == set_id]:
                del known[key]


def next_name(function: str, set_id: int) -> str:
    """Returns the name of the next call. The operation that last_handle() gives for the name must have ended before the name is
    used."""
    most = MOST_GROUPS if function.startswith("grouped_") else MOST
    with _lock:
        calls = _calls.get((function, set_id), 0)
        _calls[function, set_id] = (calls + 1) % most
    return f"{function}.noname.{calls + 1}"


def last_handle(name: str, set_id: int) -> int:
    """Returns the handle of the last call under the name, or 0 if there was none."""
    return _handles.get((name, set_id), 0)


def remember(name: str, set_id: int, handle: int) -> None:
    """Remembers `handle` as that of the call whose name next_name() gave."""
    with _lock:
        _handles[name, set_id] = handle
