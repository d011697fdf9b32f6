"""Collectives in which each rank, or one, has a part of the rows to itself: the first dimension is
cut, the others are the same on all ranks."""

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
    """This rank's place among the set's ranks, and how many they are."""
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
    """First exchanges the sizes of all ranks; start(sizes) then begins what they are for."""
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
    """Starts putting the `tensor`s of all ranks one behind the other; synchronize() gives a new
    array, the same on every rank.

    tensor: of at least one dimension; the first may differ between ranks, the others and the dtype
    may not. The ranks tell each other their sizes first: whatever is under way goes on while any
    thread of the process is in synchronize() or poll(). Errors as for allreduce_async.
    """
    return _begin_gathering("allgather", tensor, None, name, dtype, process_set)


def allgather(tensor: np.ndarray, name: Optional[str] = None, *, dtype: Optional[str] = None,
              process_set: Optional[ProcessSet] = None, timeout: Optional[float] = None) -> np.ndarray:
    """The `tensor`s of all ranks, one behind the other. See allgather_async and allreduce."""
    handle = allgather_async(tensor, name, dtype=dtype, process_set=process_set)
    result = synchronize(handle, timeout)
    assert isinstance(result, np.ndarray)
    return result


def gather_async(tensor: np.ndarray, root_rank: int, name: Optional[str] = None, *,
                 dtype: Optional[str] = None, process_set: Optional[ProcessSet] = None) -> int:
    """As allgather_async, for the root alone: synchronize() gives None on the other ranks."""
    return _begin_gathering("gather", tensor, operator.index(root_rank), name, dtype, process_set)


def gather(tensor: np.ndarray, root_rank: int, name: Optional[str] = None, *, dtype: Optional[str] = None,
           process_set: Optional[ProcessSet] = None, timeout: Optional[float] = None) -> Optional[np.ndarray]:
    """The `tensor`s of all ranks, one behind the other, on the root; None elsewhere."""
    handle = gather_async(tensor, root_rank, name, dtype=dtype, process_set=process_set)
    return synchronize(handle, timeout)  # type: ignore[return-value]


def reduce_async(tensor: np.ndarray, root_rank: int, name: Optional[str] = None, op: int = Average,
                 prescale_factor: float = 1.0, postscale_factor: float = 1.0, *, dtype: Optional[str] = None,
                 process_set: Optional[ProcessSet] = None, wire_dtype: Optional[str] = None) -> int:
    """As allreduce_async, for the root alone: synchronize() gives None on the other ranks."""
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
    """The reduction of all ranks' `tensor`s on the root; None elsewhere. See allreduce."""
    handle = reduce_async(tensor, root_rank, name, op, prescale_factor, postscale_factor, dtype=dtype,
                          process_set=process_set, wire_dtype=wire_dtype)
    return synchronize(handle, timeout)  # type: ignore[return-value]


def _even_part(array: np.ndarray, set_id: int) -> np.ndarray:
    """Memory for this rank's part of the rows; the first ranks have one more."""
    place, size = place_in(set_id)
    rows = array.shape[0] // size + (1 if place < array.shape[0] % size else 0)
    return result_of((rows, *array.shape[1:]), array.dtype)


def reducescatter_async(tensor: np.ndarray, name: Optional[str] = None, op: int = Average,
                        prescale_factor: float = 1.0, postscale_factor: float = 1.0, *,
                        dtype: Optional[str] = None, process_set: Optional[ProcessSet] = None,
                        wire_dtype: Optional[str] = None) -> int:
    """Starts reducing `tensor` over all ranks; synchronize() gives this rank's part of the rows.

    tensor: the same shape on every rank. Parts are as even as can be, the first ranks have one row
    more. Errors as for allreduce_async.
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
    """This rank's part of the reduction of all `tensor`s. See reducescatter_async and allreduce."""
    handle = reducescatter_async(tensor, name, op, prescale_factor, postscale_factor, dtype=dtype,
                                 process_set=process_set, wire_dtype=wire_dtype)
    result = synchronize(handle, timeout)
    assert isinstance(result, np.ndarray)
    return result


def scatter_async(tensor: np.ndarray, root_rank: int, name: Optional[str] = None, *, dtype: Optional[str] = None,
                  process_set: Optional[ProcessSet] = None) -> int:
    """Starts sending each rank its part of the root's `tensor`; on the other ranks it gives shape
    and dtype only. Parts as for reducescatter_async."""
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
    """This rank's part of the root's `tensor`. See scatter_async."""
    handle = scatter_async(tensor, root_rank, name, dtype=dtype, process_set=process_set)
    result = synchronize(handle, timeout)
    assert isinstance(result, np.ndarray)
    return result


def alltoall_async(tensor: np.ndarray, splits: Optional[Sequence[int]] = None, name: Optional[str] = None, *,
                   dtype: Optional[str] = None, process_set: Optional[ProcessSet] = None) -> int:
    """Starts sending each rank its part of `tensor`; synchronize() gives what all ranks sent to this
    one, one behind the other, and with `splits` a tuple of that and of how many rows each sent.

    splits: how many rows go to each rank of the set, as integers; None: equal parts. The other
    dimensions and the dtype are the same on all ranks. Sizes are exchanged as in allgather_async.
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
    """What all ranks sent to this one; with `splits` also how many rows each did. See
    alltoall_async."""
    handle = alltoall_async(tensor, splits, name, dtype=dtype, process_set=process_set)
    return synchronize(handle, timeout)  # type: ignore[return-value]
