"""Sends any objects of Python between ranks: they are pickled, and their bytes are broadcast or gathered.

Unpickling runs what the bytes say. They come from the other ranks of the same job, and as in Horovod the ranks of a job trust
each other."""

from __future__ import annotations

import pickle
from typing import Any, Callable, List, Optional

import numpy as np

from ._operations import broadcast_, is_root
from ._parts import allgather
from ._process_sets import ProcessSet


def _to_bytes(value: Any) -> np.ndarray:
    try:
        import cloudpickle
    except ImportError:
        data = pickle.dumps(value)
    else:
        data = cloudpickle.dumps(value)
    return np.frombuffer(bytearray(data), np.uint8)


def _from_bytes(data: np.ndarray) -> Any:
    return pickle.loads(data.tobytes())


def broadcast_by(broadcast_in_place: Callable[[np.ndarray, str], Any], obj: Any, is_from_here: bool, name: Optional[str]) -> Any:
    """Returns the root's `obj` on every rank. `broadcast_in_place` gives an array, whose name is the second argument, the root's
    values."""
    data = _to_bytes(obj) if is_from_here else np.empty(0, np.uint8)
    chosen = "broadcast_object" if name is None else name
    size = np.array([len(data)], np.int64)
    broadcast_in_place(size, f"{chosen}.size")
    if not is_from_here:
        data = np.empty(int(size[0]), np.uint8)
    broadcast_in_place(data, f"{chosen}.data")
    return obj if is_from_here else _from_bytes(data)


def allgather_by(gather: Callable[[np.ndarray, str], np.ndarray], obj: Any, name: Optional[str]) -> List[Any]:
    """Returns the `obj`s of all ranks. `gather` returns the arrays of all ranks, one behind the other; their name is its second
    argument."""
    data = _to_bytes(obj)
    chosen = "allgather_object" if name is None else name
    sizes = gather(np.array([len(data)], np.int64), f"{chosen}.sizes")
    parts = np.split(gather(data, f"{chosen}.data"), np.cumsum(sizes)[:-1])
    return [_from_bytes(part) for part in parts]


def broadcast_object(obj: Any, root_rank: int = 0, name: Optional[str] = None, process_set: Optional[ProcessSet] = None) -> Any:
    """Returns the root's `obj` on every rank. It is pickled on the way (by cloudpickle, if that is installed).

    The other ranks unpickle what the root sends, which can run any code in them: as in Horovod, the ranks of a job trust each
    other.

    Args:
        obj: the object; only the root's is used.
        root_rank: the rank in the job whose object all ranks get.
        name: the same on all ranks, and unique among the operations in flight; "broadcast_object" if None.
        process_set: the ranks that take part. None means all ranks.

    Returns:
        The root's object: on the root `obj` itself, on the others a copy.

    Raises:
        TypeError, ValueError: an argument is wrong.
        RuedaError: as for broadcast().
    """
    return broadcast_by(lambda array, chosen: broadcast_(array, root_rank, chosen, process_set=process_set), obj,
                        is_root(root_rank), name)


def allgather_object(obj: Any, name: Optional[str] = None, process_set: Optional[ProcessSet] = None) -> List[Any]:
    """Returns the `obj`s of all ranks, in the order of the ranks. They are pickled on the way (by cloudpickle, if that is
    installed).

    Each rank unpickles what the others send, which can run any code in it: as in Horovod, the ranks of a job trust each other.

    Args:
        obj: this rank's object, which must be picklable.
        name: the same on all ranks, and unique among the operations in flight; "allgather_object" if None.
        process_set: the ranks that take part. None means all ranks.

    Returns:
        A list of one object a rank, all of them copies.

    Raises:
        TypeError, ValueError: an argument is wrong.
        RuedaError: as for allgather().
    """
    return allgather_by(lambda array, chosen: allgather(array, chosen, process_set=process_set), obj, name)
