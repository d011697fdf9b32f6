"""Names of collectives that were given none: Horovod's, such as allreduce.noname.1. They are counted in the order of the calls,
which all ranks make alike, and come again: a job may make any number of calls."""

from __future__ import annotations

import threading
from typing import Dict, Tuple

# So many of one function may be in flight in a process set at a time; who calls it once more waits for the first of them.
MOST = 1024
# Likewise of groups, which have as many names as tensors.
MOST_GROUPS = 64

_calls: "Dict[Tuple[str, int], int]" = {}  # by function and process set
_handles: "Dict[Tuple[str, int], int]" = {}  # by name and process set: the last one
_lock = threading.Lock()


def reset() -> None:
    """All count from 1 again: at init() and shutdown(), and when all ranks have joined."""
    with _lock:
        _calls.clear()
        _handles.clear()


def forget_set(set_id: int) -> None:
    """Of a process set that is new, under a number that an older one may have had: its ranks have counted differently."""
    with _lock:
        for known in (_calls, _handles):
            for key in [key for key in known if key[1] == set_id]:
                del known[key]


def next_name(function: str, set_id: int) -> str:
    """That of the next call. What last_handle() gives for it must have ended before it is used."""
    most = MOST_GROUPS if function.startswith("grouped_") else MOST
    with _lock:
        calls = _calls.get((function, set_id), 0)
        _calls[function, set_id] = (calls + 1) % most
    return f"{function}.noname.{calls + 1}"


def last_handle(name: str, set_id: int) -> int:
    """That of the last call under the name; 0: there was none."""
    return _handles.get((name, set_id), 0)


def remember(name: str, set_id: int, handle: int) -> None:
    """`handle` is that of the call which next_name() gave the name."""
    with _lock:
        _handles[name, set_id] = handle
