"""Names that are in flight. The daemon refuses one that is there twice when its turn comes; Horovod's
users expect the error from the call that used it."""

from __future__ import annotations

from typing import Dict, Optional, Tuple

from .._core import _operations
from .._core._errors import DUPLICATE_NAME
from ._errors import HorovodArgumentError

Key = Tuple[str, int]  # name and process set

# The last handle of each name that callers gave; what has a counted one waits for the last under it.
_handles: Dict[Key, int] = {}


def reset() -> None:
    """At init(): handles begin again."""
    _handles.clear()


def take_name(function: str, name: Optional[str], set_id: int) -> str:
    """Horovod's name: the function's, a dot, and the caller's or a number. HorovodArgumentError while the
    name is in flight."""
    if name is None:
        return _operations.name_for(function, None, set_id)
    chosen = _operations.name_for(function, f"{function}.{name}", set_id)
    handle = _handles.get((chosen, set_id))
    if handle is not None and _operations.is_in_flight(handle) and not _operations.poll(handle):
        raise HorovodArgumentError(f"tensor \"{chosen}\" is in flight already on this rank; synchronize it first, or "
                                   "give another name", DUPLICATE_NAME)
    return chosen


def is_in_flight(key: Key) -> bool:
    """Whether the last handle of a name that a caller gave has not been synchronized."""
    return _operations.is_in_flight(_handles.get(key, 0))


def remember(name: Optional[str], chosen: str, set_id: int, handle: int) -> int:
    """`handle` is that of take_name(function, name, set_id)'s result."""
    if name is None:
        return _operations.keep_counted(name, chosen, set_id, handle)
    _handles[chosen, set_id] = handle
    return handle
