"""Implements collectives in which each rank, or one rank, has a part of the rows to itself: the first dimension is cut, and the
others are the same on all ranks."""

from __future__ import annotations

import ctypes
import operator
from typing import Any, Callable, Optional, Sequence, Union

import numpy as np

from . import _library
from ._dtypes import CODES, as_array, code_of
from ._library import Tensor, byref, check
from ._operations import (Average, Pending, Slot, begin_sized, is_root, keep_counted, make_options, name_for,
                          register, require_init, result_of, synchronize)
from ._process_sets import ProcessSet, id_of

_INT64 = CODES["int64"]
_SIZES = ".sizes"
_MOST_NAME_BYTES = 255 - len(_SIZES)


def _contiguous(array: np.ndarray) -> np.ndarray:
    return array if array.flags.c_contiguous and array.flags.aligned else array.copy(order="C")


def _rows(tensor: Any) -> np.ndarray:
    array = as_array(tensor)
    if array.ndim == 0:
        raise ValueError("tensor has no first dimension to be cut; pass array.reshape(1)")
    return _contiguous(array)


def dims_of(values: Sequence[int]) -> Any:
    return (ctypes.c_int64 * max(len(values), 1))(*values)


def _c_tensor(name: str, array: np.ndarray, output: Optional[np.ndarray], shape: Any, code: int,
              set_id: int) -> Tensor:
    return Tensor(name.encode(), array.ctypes.data, 0 if output is None else output.ctypes.data,
                  shape, array.ndim, code, set_id)


def place_in(set_id: int) -> "tuple[int, int]":
    """Returns this rank's place among the set's ranks, and the number of those ranks."""
    library = _library.load()
    size = check(library.rueda_process_set_size(set_id))
    place = ctypes.c_int32()
    check(library.rueda_process_set_rank(set_id, byref(place)))
    if place.value < 0:
        raise ValueError(f"rank {check(library.rueda_rank())} is not in process set {set_id}")
    return place.value, size


def _begin_gathering(function: str, tensor: Any, root_rank: Optional[int], name: Optional[str],
                     dtype: Optional[str], process_set: Optional[ProcessSet]) -> int:
    array = _rows(tensor)
    code = code_of(array, dtype)
    require_init()
    set_id = id_of(process_set)
    is_getting = root_rank is None or is_root(root_rank)
    _, size = place_in(set_id)
    chosen = name_for(function, name, set_id)

    def start(sizes: np.ndarray) -> Pending:
        rows = sizes.reshape(size)
        output = result_of((int(rows.sum()), *array.shape[1:]), array.dtype) if is_getting else None
        shape, counts = dims_of(array.shape), dims_of(rows.tolist())
        c_tensor = _c_tensor(chosen, array, output, shape, code, set_id)
        handle = ctypes.c_uint64()
        library = _library.load()
        if root_rank is None:
            check(library.rueda_allgather_async(byref(c_tensor), counts, byref(handle)))
        else:
            check(library.rueda_gather_async(byref(c_tensor), counts, int(root_rank), byref(handle)))
        return Pending([Slot(array, output, output, shape)], handle=handle.value)

    return keep_counted(name, chosen, set_id, begin_with_sizes(chosen, [array.shape[0]], size, set_id, start))


def begin_with_sizes(name: str, own: Sequence[int], size: int, set_id: int,
                start: Callable[[np.ndarray], Pending]) -> int:
    """Exchanges the sizes of all ranks; start(sizes) then begins the operation that needs them."""
    if len(name.encode()) > _MOST_NAME_BYTES:
        raise ValueError(f"name {name!r} must have at most {_MOST_NAME_BYTES} bytes: sizes are exchanged under it, "
                         f"with {_SIZES!r} behind")
    mine = np.array(own, np.int64)
    sizes = np.empty(len(own) * size, np.int64)
    shape = dims_of(mine.shape)
    c_tensor = _c_tensor(name + _SIZES, mine, sizes, shape, _INT64, set_id)
    handle = ctypes.c_uint64()
    check(_library.load().rueda_allgather_async(byref(c_tensor), None, byref(handle)))
    return begin_sized(handle.value, (mine, shape), lambda: start(sizes))


def allgather_async(tensor: np.ndarray, name: Optional[str] = None, *, dtype: Optional[str] = None,
                    process_set: Optional[ProcessSet] = None) -> int:
    """Starts putting the `tensor`s of all ranks one behind the other.

    The ranks tell each other their sizes first. Operations that wait for sizes go on while any thread of the process is in
    synchronize() or poll().

    Args:
        tensor: an array of at least one dimension. The first may differ between ranks; the others and the dtype may not.
        name, dtype, process_set: as for allreduce_async().

    Returns:
        A handle, for which synchronize() returns a new array, the same on every rank.

    Raises:
        TypeError, ValueError, RuedaError: as for allreduce_async().
    """
    return _begin_gathering("allgather", tensor, None, name, dtype, process_set)


def allgather(tensor: np.ndarray, name: Optional[str] = None, *, dtype: Optional[str] = None,
              process_set: Optional[ProcessSet] = None, timeout: Optional[float] = None) -> np.ndarray:
    """Returns the `tensor`s of all ranks, one behind the other.

    Args:
        tensor, name, dtype, process_set: as for allgather_async().
        timeout: seconds, as for allreduce().

    Returns:
        The new array, the same on every rank.

    Raises:
        TypeError, ValueError, RuedaError: as for allreduce().
    """
    handle = allgather_async(tensor, name, dtype=dtype, process_set=process_set)
    result = synchronize(handle, timeout)
    assert isinstance(result, np.ndarray)
    return result


def gather_async(tensor: np.ndarray, root_rank: int, name: Optional[str] = None, *,
                 dtype: Optional[str] = None, process_set: Optional[ProcessSet] = None) -> int:
    """Starts putting the `tensor`s of all ranks one behind the other on the root.

    Args:
        tensor, name, dtype, process_set: as for allgather_async().
        root_rank: the rank in the job that gets the result.

    Returns:
        A handle, for which synchronize() returns a new array on the root, and None on the other ranks.

    Raises:
        TypeError, ValueError, RuedaError: as for allreduce_async().
    """
    return _begin_gathering("gather", tensor, operator.index(root_rank), name, dtype, process_set)


def gather(tensor: np.ndarray, root_rank: int, name: Optional[str] = None, *, dtype: Optional[str] = None,
           process_set: Optional[ProcessSet] = None, timeout: Optional[float] = None) -> Optional[np.ndarray]:
    """Returns the `tensor`s of all ranks, one behind the other, on the root.

    Args:
        tensor, root_rank, name, dtype, process_set: as for gather_async().
        timeout: seconds, as for allreduce().

    Returns:
        The new array on the root, and None on the other ranks.

    Raises:
        TypeError, ValueError, RuedaError: as for allreduce().
    """
    handle = gather_async(tensor, root_rank, name, dtype=dtype, process_set=process_set)
    return synchronize(handle, timeout)  # type: ignore[return-value]


def reduce_async(tensor: np.ndarray, root_rank: int, name: Optional[str] = None, op: int = Average,
                 prescale_factor: float = 1.0, postscale_factor: float = 1.0, *, dtype: Optional[str] = None,
                 process_set: Optional[ProcessSet] = None, wire_dtype: Optional[str] = None) -> int:
    """Starts reducing `tensor` over all ranks for the root.

    Args:
        tensor, name, op, prescale_factor, postscale_factor, dtype, process_set, wire_dtype: as for allreduce_async().
        root_rank: the rank in the job that gets the result.

    Returns:
        A handle, for which synchronize() returns a new array on the root, and None on the other ranks.

    Raises:
        TypeError, ValueError, RuedaError: as for allreduce_async().
    """
    array = _contiguous(as_array(tensor))
    code = code_of(array, dtype)
    options = make_options(op, prescale_factor, postscale_factor, wire_dtype=wire_dtype)
    require_init()
    set_id = id_of(process_set)
    output = result_of(array.shape, array.dtype) if is_root(root_rank) else None
    shape = dims_of(array.shape)
    chosen = name_for("reduce", name, set_id)
    c_tensor = _c_tensor(chosen, array, output, shape, code, set_id)
    handle = ctypes.c_uint64()
    check(_library.load().rueda_reduce_async(byref(c_tensor), int(root_rank), byref(options), byref(handle)))
    return keep_counted(name, chosen, set_id, register(handle.value, [Slot(array, output, output, shape)]))


def reduce(tensor: np.ndarray, root_rank: int, name: Optional[str] = None, op: int = Average,
           prescale_factor: float = 1.0, postscale_factor: float = 1.0, *, dtype: Optional[str] = None,
           process_set: Optional[ProcessSet] = None, wire_dtype: Optional[str] = None,
           timeout: Optional[float] = None) -> Optional[np.ndarray]:
    """Returns the reduction of all ranks' `tensor`s on the root.

    Args:
        tensor, root_rank, name, op, prescale_factor, postscale_factor, dtype, process_set, wire_dtype: as for reduce_async().
        timeout: seconds, as for allreduce().

    Returns:
        The new array on the root, and None on the other ranks.

    Raises:
        TypeError, ValueError, RuedaError: as for allreduce().
    """
    handle = reduce_async(tensor, root_rank, name, op, prescale_factor, postscale_factor, dtype=dtype,
                          process_set=process_set, wire_dtype=wire_dtype)
    return synchronize(handle, timeout)  # type: ignore[return-value]


def _even_part(array: np.ndarray, set_id: int) -> np.ndarray:
    """Returns memory for this rank's part of the rows; the first ranks have one row more."""
    place, size = place_in(set_id)
    rows = array.shape[0] // size + (1 if place < array.shape[0] % size else 0)
    return result_of((rows, *array.shape[1:]), array.dtype)


def reducescatter_async(tensor: np.ndarray, name: Optional[str] = None, op: int = Average,
                        prescale_factor: float = 1.0, postscale_factor: float = 1.0, *,
                        dtype: Optional[str] = None, process_set: Optional[ProcessSet] = None,
                        wire_dtype: Optional[str] = None) -> int:
    """Starts reducing `tensor` over all ranks, each of which gets a part of the rows.

    Args:
        tensor: an array of the same shape on every rank. Parts are as even as can be; the first ranks have one row more.
        name, op, prescale_factor, postscale_factor, dtype, process_set, wire_dtype: as for allreduce_async().

    Returns:
        A handle, for which synchronize() returns this rank's part as a new array.

    Raises:
        TypeError, ValueError, RuedaError: as for allreduce_async().
    """
    array = _rows(tensor)
    code = code_of(array, dtype)
    options = make_options(op, prescale_factor, postscale_factor, wire_dtype=wire_dtype)
    require_init()
    set_id = id_of(process_set)
    output = _even_part(array, set_id)
    shape = dims_of(array.shape)
    chosen = name_for("reducescatter", name, set_id)
    c_tensor = _c_tensor(chosen, array, output, shape, code, set_id)
    handle = ctypes.c_uint64()
    check(_library.load().rueda_reduce_scatter_async(byref(c_tensor), None, byref(options), byref(handle)))
    return keep_counted(name, chosen, set_id, register(handle.value, [Slot(array, output, output, shape)]))


def reducescatter(tensor: np.ndarray, name: Optional[str] = None, op: int = Average,
                  prescale_factor: float = 1.0, postscale_factor: float = 1.0, *, dtype: Optional[str] = None,
                  process_set: Optional[ProcessSet] = None, wire_dtype: Optional[str] = None,
                  timeout: Optional[float] = None) -> np.ndarray:
    """Returns this rank's part of the reduction of all `tensor`s.

    Args:
        tensor, name, op, prescale_factor, postscale_factor, dtype, process_set, wire_dtype: as for reducescatter_async().
        timeout: seconds, as for allreduce().

    Returns:
        This rank's part, as a new array.

    Raises:
        TypeError, ValueError, RuedaError: as for allreduce().
    """
    handle = reducescatter_async(tensor, name, op, prescale_factor, postscale_factor, dtype=dtype,
                                 process_set=process_set, wire_dtype=wire_dtype)
    result = synchronize(handle, timeout)
    assert isinstance(result, np.ndarray)
    return result


def scatter_async(tensor: np.ndarray, root_rank: int, name: Optional[str] = None, *, dtype: Optional[str] = None,
                  process_set: Optional[ProcessSet] = None) -> int:
    """Starts sending each rank its part of the root's `tensor`.

    Args:
        tensor: an array. On ranks other than the root it gives only shape and dtype. Parts are as for reducescatter_async().
        root_rank: the rank in the job whose values are sent.
        name, dtype, process_set: as for allreduce_async().

    Returns:
        A handle, for which synchronize() returns this rank's part as a new array.

    Raises:
        TypeError, ValueError, RuedaError: as for allreduce_async().
    """
    array = _rows(tensor)
    code = code_of(array, dtype)
    require_init()
    set_id = id_of(process_set)
    is_root(root_rank)
    output = _even_part(array, set_id)
    shape = dims_of(array.shape)
    chosen = name_for("scatter", name, set_id)
    c_tensor = _c_tensor(chosen, array, output, shape, code, set_id)
    handle = ctypes.c_uint64()
    check(_library.load().rueda_scatter_async(byref(c_tensor), None, int(root_rank), byref(handle)))
    return keep_counted(name, chosen, set_id, register(handle.value, [Slot(array, output, output, shape)]))


def scatter(tensor: np.ndarray, root_rank: int, name: Optional[str] = None, *, dtype: Optional[str] = None,
            process_set: Optional[ProcessSet] = None, timeout: Optional[float] = None) -> np.ndarray:
    """Returns this rank's part of the root's `tensor`.

    Args:
        tensor, root_rank, name, dtype, process_set: as for scatter_async().
        timeout: seconds, as for allreduce().

    Returns:
        This rank's part, as a new array.

    Raises:
        TypeError, ValueError, RuedaError: as for allreduce().
    """
    handle = scatter_async(tensor, root_rank, name, dtype=dtype, process_set=process_set)
    result = synchronize(handle, timeout)
    assert isinstance(result, np.ndarray)
    return result


def alltoall_async(tensor: np.ndarray, splits: Optional[Sequence[int]] = None, name: Optional[str] = None, *,
                   dtype: Optional[str] = None, process_set: Optional[ProcessSet] = None) -> int:
    """Starts sending each rank its part of `tensor`. Sizes are exchanged first, as in allgather_async().

    Args:
        tensor: an array; its dimensions but the first, and its dtype, are the same on all ranks.
        splits: the numbers of rows that go to each rank of the set, as integers; None means equal parts.
        name, dtype, process_set: as for allreduce_async().

    Returns:
        A handle, for which synchronize() returns what all ranks sent to this one, one behind the other. With `splits` it returns
            a tuple of that array and of the numbers of rows that each rank sent.

    Raises:
        TypeError, ValueError, RuedaError: as for allreduce_async().
    """
    array = _rows(tensor)
    code = code_of(array, dtype)
    require_init()
    set_id = id_of(process_set)
    place, size = place_in(set_id)
    rows = array.shape[0]
    if splits is None:
        if rows % size != 0:
            raise ValueError(f"tensor has {rows} rows, which cannot be split equally among {size} ranks; pass splits")
        own = [rows // size] * size
    else:
        own = [int(split) for split in splits]
        if len(own) != size or min(own) < 0 or sum(own) != rows:
            raise ValueError(f"splits={own} must be {size} numbers from 0 that add up to the tensor's {rows} rows")
    chosen = name_for("alltoall", name, set_id)

    def start(sizes: np.ndarray) -> Pending:
        matrix = sizes.reshape(size, size)
        received = matrix[:, place].copy()
        output = result_of((int(received.sum()), *array.shape[1:]), array.dtype)
        shape, counts = dims_of(array.shape), dims_of(sizes.tolist())
        c_tensor = _c_tensor(chosen, array, output, shape, code, set_id)
        handle = ctypes.c_uint64()
        check(_library.load().rueda_alltoall_async(byref(c_tensor), counts, byref(handle)))
        finish = None if splits is None else (lambda: (output, received))
        return Pending([Slot(array, output, output, shape)], handle=handle.value, finish=finish)

    return keep_counted(name, chosen, set_id, begin_with_sizes(chosen, own, size, set_id, start))


def alltoall(tensor: np.ndarray, splits: Optional[Sequence[int]] = None, name: Optional[str] = None, *,
             dtype: Optional[str] = None, process_set: Optional[ProcessSet] = None,
             timeout: Optional[float] = None) -> "Union[np.ndarray, tuple[np.ndarray, np.ndarray]]":
    """Returns what all ranks sent to this one, one behind the other.

    Args:
        tensor, splits, name, dtype, process_set: as for alltoall_async().
        timeout: seconds, as for allreduce().

    Returns:
        The new array; with `splits`, a tuple of it and of the numbers of rows that each rank sent.

    Raises:
        TypeError, ValueError, RuedaError: as for allreduce().
    """
    handle = alltoall_async(tensor, splits, name, dtype=dtype, process_set=process_set)
    return synchronize(handle, timeout)  # type: ignore[return-value]
