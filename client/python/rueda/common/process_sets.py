"""Offers the names of horovod.common.process_sets."""

from __future__ import annotations

from typing import Dict, List

from .._core import _process_sets
from .._core._errors import INVALID_ARGUMENT, RuedaError
from .._core._operations import require_init
from .._core._process_sets import ProcessSet, Ranks, global_process_set
from .exceptions import horovod_error


def add_process_set(process_set: Ranks) -> ProcessSet:
    """Adds a set. Every rank of the job calls it, in the set or not, with the same ranks.

    Args:
        process_set: a ProcessSet, or a sequence of ranks.

    Returns:
        The set.

    Raises:
        ValueError: on every rank, for ranks that cannot be a set or are one already.
    """
    try:
        return _process_sets.add_process_set(process_set)
    except RuedaError as error:
        if error.code == INVALID_ARGUMENT:
            raise ValueError(str(error)) from None
        raise horovod_error(error) from None


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a set, on every rank of the job.

    Args:
        process_set: the set.

    Returns:
        False if it cannot be removed, because it is the set of all ranks, is not there, or is in use; otherwise True.
    """
    if process_set.process_set_id is None or process_set is _process_sets.global_process_set:
        return False
    try:
        _process_sets.remove_process_set(process_set)
    except RuedaError as error:
        if error.code == INVALID_ARGUMENT:
            return False
        raise horovod_error(error) from None
    return True


def get_process_set_ids_and_ranks() -> Dict[int, List[int]]:
    """Returns all sets that this process has added, and the set of all ranks."""
    require_init()
    return {one.process_set_id: list(one.ranks) for one in (global_process_set, *_process_sets.added())
            if one.process_set_id is not None}


__all__ = ["ProcessSet", "add_process_set", "get_process_set_ids_and_ranks", "global_process_set", "remove_process_set"]
