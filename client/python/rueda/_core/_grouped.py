"""Implements groups of collectives in which ranks have parts of their own: one handle for several arrays."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

import numpy as np

from ._operations import Average, keep_counted, name_for, register_members, require_init, synchronize
from ._parts import allgather_async, reducescatter_async
from ._process_sets import ProcessSet, id_of


def begin_group(function: str, tensors: Sequence[Any], name: Optional[str], process_set: Optional[ProcessSet],
                begin: Callable[[Any, str], int]) -> int:
    """Calls begin(tensor, its name) for each tensor. Members are named NAME_1ofN, NAME_2ofN, ... as Horovod does."""
    if not isinstance(tensors, (list, tuple)) or len(tensors) == 0:
        raise ValueError("tensors must be a list of at least one")
    require_init()
    set_id = id_of(process_set)
    group = name_for(function, name, set_id)
    count = len(tensors)
    handle = register_members([begin(tensor, f"{group}_{i + 1}of{count}") for i, tensor in enumerate(tensors)])
    return keep_counted(name, group, set_id, handle)


def _arrays(result: Any) -> "list[np.ndarray]":
    assert isinstance(result, list)
    return result


def grouped_allgather_async(tensors: Sequence[np.ndarray], name: Optional[str] = None, *,
                            process_set: Optional[ProcessSet] = None) -> int:
    """Starts an allgather of each of `tensors`.

    Args:
        tensors: arrays as for allgather_async().
        name: the name of the group; counted if None.
        process_set: the ranks that take part; all ranks if None.

    Returns:
        A handle, for which synchronize() returns a list of new arrays.

    Raises:
        TypeError, ValueError, RuedaError: as for allreduce_async().
    """
    return begin_group("grouped_allgather", tensors, name, process_set,
                       lambda tensor, member: allgather_async(tensor, member, process_set=process_set))


def grouped_allgather(tensors: Sequence[np.ndarray], name: Optional[str] = None, *,
                      process_set: Optional[ProcessSet] = None, timeout: Optional[float] = None) -> "list[np.ndarray]":
    """Gathers each of `tensors` from all ranks, as grouped_allgather_async() does, and waits for the result.

    Args:
        tensors, name, process_set: as for grouped_allgather_async().
        timeout: seconds, as for allreduce().

    Returns:
        A list of new arrays.

    Raises:
        RuedaError: as for allreduce().
    """
    return _arrays(synchronize(grouped_allgather_async(tensors, name, process_set=process_set), timeout))


def grouped_reducescatter_async(tensors: Sequence[np.ndarray], name: Optional[str] = None, op: int = Average,
                                prescale_factor: float = 1.0, postscale_factor: float = 1.0, *,
                                process_set: Optional[ProcessSet] = None) -> int:
    """Starts a reducescatter of each of `tensors`.

    Args:
        tensors: arrays as for reducescatter_async().
        name: the name of the group; counted if None.
        op, prescale_factor, postscale_factor: as for allreduce_async().
        process_set: the ranks that take part; all ranks if None.

    Returns:
        A handle, for which synchronize() returns a list of new arrays.

    Raises:
        TypeError, ValueError, RuedaError: as for allreduce_async().
    """
    def begin(tensor: np.ndarray, member: str) -> int:
        return reducescatter_async(tensor, member, op, prescale_factor, postscale_factor, process_set=process_set)

    return begin_group("grouped_reducescatter", tensors, name, process_set, begin)


def grouped_reducescatter(tensors: Sequence[np.ndarray], name: Optional[str] = None, op: int = Average,
                          prescale_factor: float = 1.0, postscale_factor: float = 1.0, *,
                          process_set: Optional[ProcessSet] = None,
                          timeout: Optional[float] = None) -> "list[np.ndarray]":
    """Reduces and scatters each of `tensors`, as grouped_reducescatter_async() does, and waits for the result.

    Args:
        tensors, name, op, prescale_factor, postscale_factor, process_set: as for grouped_reducescatter_async().
        timeout: seconds, as for allreduce().

    Returns:
        A list of new arrays.

    Raises:
        RuedaError: as for allreduce().
    """
    handle = grouped_reducescatter_async(tensors, name, op, prescale_factor, postscale_factor,
                                         process_set=process_set)
    return _arrays(synchronize(handle, timeout))
