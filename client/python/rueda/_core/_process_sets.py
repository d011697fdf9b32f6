"""Implements process sets: ranks that reduce among themselves, beside the others and without waiting for them."""

from __future__ import annotations

import ctypes
import os
from typing import Iterable, Optional, Sequence, Union

from . import _counted, _library
from ._library import byref, check

_VARIABLE = "RUEDA_PROCESS_SETS"


class ProcessSet:
    """Names some of the job's ranks. It becomes usable when init() or add_process_set() has added it on every rank of the job,
    until remove_process_set(); it may then be added again.

    Attributes:
        ranks: the ranks, in any order.
        process_set_id: a number that is the same on all ranks, or None while the set is not added.
    """

    def __init__(self, ranks: Iterable[int]) -> None:
        self.ranks = sorted(int(rank) for rank in ranks)
        self.process_set_id: Optional[int] = None

    def _id(self) -> int:
        if self.process_set_id is None:
            raise ValueError(f"{self} has not been added; use rueda.add_process_set or init(process_sets=...)")
        return self.process_set_id

    def size(self) -> int:
        """Returns the number of the set's ranks."""
        return check(_library.load().rueda_process_set_size(self._id()))

    def rank(self) -> int:
        """Returns this process's place among the set's ranks, from 0, or -1 if it is not one of them."""
        rank = ctypes.c_int32()
        check(_library.load().rueda_process_set_rank(self._id(), byref(rank)))
        return rank.value

    def included(self) -> bool:
        """Returns whether this process is one of the set's ranks."""
        return self.rank() >= 0

    def __repr__(self) -> str:
        return f"ProcessSet({self.ranks}, process_set_id={self.process_set_id})"


class _GlobalProcessSet(ProcessSet):
    """Stands for all ranks of the job. It is there from init() on."""

    def __init__(self) -> None:
        self.process_set_id = 0

    @property
    def ranks(self) -> "list[int]":  # type: ignore[override]
        return list(range(self.size()))

    def __repr__(self) -> str:
        return "global_process_set"


global_process_set = _GlobalProcessSet()

Ranks = Union[ProcessSet, Sequence[int]]
_added: "list[ProcessSet]" = []


def added() -> "list[ProcessSet]":
    """Returns the sets that are there, besides the set of all ranks."""
    return list(_added)


def id_of(process_set: Optional[ProcessSet]) -> int:
    """Returns the number of a process set. None stands for all ranks."""
    if process_set is None:
        return 0
    if not isinstance(process_set, ProcessSet):
        raise TypeError(f"process_set must be a rueda.ProcessSet, not {type(process_set).__name__}")
    return process_set._id()


def reset() -> None:
    """Forgets the job's sets. It is called by init() and shutdown()."""
    for process_set in _added:
        process_set.process_set_id = None
    _added.clear()


def add_process_set(process_set: Ranks) -> ProcessSet:
    """Adds a set. Every rank of the job calls it, in the set or not, with the same ranks, and waits for all others.

    Args:
        process_set: a ProcessSet, or a sequence of ranks. It may have no rank.

    Returns:
        The set.

    Raises:
        RuedaError: on every rank, for a rank that is listed twice or that the job does not have, for ranks that are a set
            already, and if ranks asked for different sets (the text names both).
    """
    added = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    if added.process_set_id is not None:
        raise ValueError(f"{added} has been added already")
    ranks = (ctypes.c_int32 * max(len(added.ranks), 1))(*added.ranks)
    new_id = ctypes.c_uint32()
    check(_library.load().rueda_process_set_add(ranks, len(added.ranks), byref(new_id)))
    added.process_set_id = new_id.value
    _counted.forget_set(new_id.value)
    _added.append(added)
    return added


def remove_process_set(process_set: ProcessSet) -> None:
    """Removes a set. Every rank of the job calls it, when nothing of its own is in flight in the set.

    Args:
        process_set: the set.

    Raises:
        RuedaError: on every rank, if an operation is in flight in the set, and for the set of all ranks.
    """
    removed = id_of(process_set)
    check(_library.load().rueda_process_set_remove(removed))
    process_set.process_set_id = None
    _added.remove(process_set)


def initial(process_sets: Optional[Sequence[Ranks]]) -> "list[Ranks]":
    """Returns the sets that init() is to add: those that it was given, or else those of $RUEDA_PROCESS_SETS, as in "0,1;2,3"."""
    if process_sets is not None:
        return list(process_sets)
    text = os.environ.get(_VARIABLE, "").strip()
    if not text:
        return []
    try:
        return [[int(rank) for rank in ranks.split(",")] for ranks in text.split(";")]
    except ValueError:
        raise ValueError(f"{_VARIABLE}={text!r} is not lists of ranks, as in 0,1;2,3") from None
