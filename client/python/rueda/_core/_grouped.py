"""Groups of collectives in which ranks have parts of their own: one handle for several arrays."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

import numpy as np

from ._operations import Average, keep_counted, name_for, register_members, require_init, synchronize
from ._parts import allgather_async, reducescatter_async
from ._process_sets import ProcessSet, id_of


def begin_group(function: str, tensors: Sequence[Any], name: Optional[str], process_set: Optional[ProcessSet],
                begin: Callable[[Any, str], int]) -> int:
    """begin(tensor, its name) for each; members are named NAME_1ofN, NAME_2ofN, ... as Horovod does."""
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
    """Starts an allgather of each of `tensors`; synchronize() gives a list. See allgather_async."""
    return begin_group("grouped_allgather", tensors, name, process_set,
                       lambda tensor, member: allgather_async(tensor, member, process_set=process_set))


def grouped_allgather(tensors: Sequence[np.ndarray], name: Optional[str] = None, *,
                      process_set: Optional[ProcessSet] = None, timeout: Optional[float] = None) -> "list[np.ndarray]":
    """The allgather of each of `tensors`. See grouped_allgather_async and allreduce."""
    return _arrays(synchronize(grouped_allgather_async(tensors, name, process_set=process_set), timeout))


def grouped_reducescatter_async(tensors: Sequence[np.ndarray], name: Optional[str] = None, op: int = Average,
                                prescale_factor: float = 1.0, postscale_factor: float = 1.0, *,
                                process_set: Optional[ProcessSet] = None) -> int:
    """Starts a reducescatter of each of `tensors`; synchronize() gives a list. See
    reducescatter_async."""
    def begin(tensor: np.ndarray, member: str) -> int:
        return reducescatter_async(tensor, member, op, prescale_factor, postscale_factor, process_set=process_set)

    return begin_group("grouped_reducescatter", tensors, name, process_set, begin)


def grouped_reducescatter(tensors: Sequence[np.ndarray], name: Optional[str] = None, op: int = Average,
                          prescale_factor: float = 1.0, postscale_factor: float = 1.0, *,
                          process_set: Optional[ProcessSet] = None,
                          timeout: Optional[float] = None) -> "list[np.ndarray]":
    """The reducescatter of each of `tensors`. See grouped_reducescatter_async and allreduce."""
    handle = grouped_reducescatter_async(tensors, name, op, prescale_factor, postscale_factor,
                                         process_set=process_set)
    return _arrays(synchronize(handle, timeout))
