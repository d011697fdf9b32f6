"""Keeps the names that are in flight. The daemon refuses a name that is in flight twice only when its turn comes; Horovod's users
expect the error from the call that used the name."""

from __future__ import annotations

from typing import Dict, Optional, Tuple

from .._core import _operations
from .._core._errors import DUPLICATE_NAME
from ._errors import HorovodArgumentError

Key = Tuple[str, int]  # the name and the process set

# The last handle of each name that callers gave. A call with a counted name waits for the last call under that name.
_handles: Dict[Key, int] = {}


def reset() -> None:
    """Forgets all names. It is called by init(), where handles begin again."""
    _handles.clear()


def take_name(function: str, name: Optional[str], set_id: int) -> str:
    """Returns Horovod's name: the function's, a dot, and the caller's or a number.

    Raises:
        HorovodArgumentError: the name is in flight.
    """
    if name is None:
        return _operations.name_for(function, None, set_id)
    chosen = _operations.name_for(function, f"{function}.{name}", set_id)
    handle = _handles.get((chosen, set_id))
    if handle is not None and _operations.is_in_flight(handle) and not _operations.poll(handle):
        raise HorovodArgumentError(f"tensor \"{chosen}\" is in flight already on this rank; synchronize it first, or "
                                   "give another name", DUPLICATE_NAME)
    return chosen


def is_in_flight(key: Key) -> bool:
    """Returns whether the last handle of a name that a caller gave has not been synchronized."""
    return _operations.is_in_flight(_handles.get(key, 0))


def remember(name: Optional[str], chosen: str, set_id: int, handle: int) -> int:
    """Remembers `handle` as that of the call whose name take_name(function, name, set_id) gave."""
    if name is None:
        return _operations.keep_counted(name, chosen, set_id, handle)
    _handles[chosen, set_id] = handle
    return handle
