"""Implements collectives that return a handle, without gradients. rueda._core._operations says what handles are.

Names are those of Horovod: the function's name is put before the caller's, so that one tensor may be in flight in two functions.
"""

from __future__ import annotations

from ctypes import c_uint64
from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

import numpy as np
import torch

from .._core import _grouped, _operations, _parts
from .._core._errors import INVALID_ARGUMENT, RuedaError
from .._core._library import Tensor, byref
from .._core._operations import Adasum, Average, Pending, is_root, require_init
from .._core._process_sets import ProcessSet, global_process_set, id_of
from .._torch_common import _device
from .._torch_common._tensors import (as_moved, c_tensor, check_tensor, code_of, contiguous, dims_of, register, result_of,
                                      submit_async)
from . import _known_groups, _known_tensors
from ._errors import HorovodArgumentError, horovod_error
from ._errors import synchronize as _synchronize
from ._names import is_in_flight, remember, take_name
from ._reductions import chosen_op, options_of
from ._submit import submit, submit_on_device

Handle = Union[int, Callable[[], torch.Tensor]]


class _Place:
    """Says where a reduction reads and writes, and how the caller's result is made of that.

    Attributes:
        through_host: the collective's name, if it has no form for device memory.
    """

    def __init__(self, tensor: torch.Tensor, in_place: bool, through_host: Optional[str] = None) -> None:
        self.caller = tensor
        self.in_place = in_place
        self.device = _device.find(tensor) if through_host is None else None
        self.source = contiguous(tensor if through_host is None else _device.on_host(tensor, through_host))
        is_copy = self.source is not tensor
        if in_place or is_copy:
            self.target = self.source
        elif self.device is not None:
            self.target = self.device.empty_like(tensor)
        else:
            self.target = result_of(tensor.shape, tensor.dtype)
        self.shape = dims_of(tensor.shape)

    def c_tensor(self, name: str, code: int, set_id: int) -> Tensor:
        return c_tensor(name, self.source, self.target, self.shape, self.caller.dim(), code, set_id)

    def leave(self) -> Optional[_device.OnStream]:
        return None if self.device is None else _device.OnStream(self.device, self.caller, self)

    def finish(self) -> torch.Tensor:
        if not self.in_place:
            return self.target if self.device is not None else _device.back(self.target, self.caller)
        if self.target is not self.caller:
            self.caller.detach().copy_(self.target)
        return self.caller


def _allreduce(tensor: Any, average: Optional[bool], name: Optional[str], op: Optional[int],
               prescale_factor: float, postscale_factor: float, process_set: ProcessSet, in_place: bool) -> int:
    if in_place and name:
        known = _known_tensors.find(tensor, average, name, op, prescale_factor, postscale_factor, process_set)
        if known is not None and not is_in_flight(known.chosen):
            again = c_uint64()
            if known.submit(known.told, known.options, byref(again)) == 0:  # otherwise the full way reports the reason
                handle = register(again.value, None, lambda: tensor)
                return remember(name, *known.chosen, handle)
    check_tensor(tensor)
    code = code_of(tensor)
    options = options_of(chosen_op(op, average), prescale_factor, postscale_factor)
    require_init()
    set_id = id_of(process_set)
    place = _Place(tensor, in_place, "an Adasum" if options.op == Adasum else None)
    chosen = take_name("allreduce", name, set_id)
    described = place.c_tensor(chosen, code, set_id)
    if place.device is not None:
        handle = submit_on_device("rueda_device_allreduce_async", byref(described), byref(options),
                                  place.device.stream_of(tensor))
        return remember(name, chosen, set_id, register(handle, place, place.finish, place.leave()))
    handle = submit("rueda_allreduce_async", byref(described), byref(options))
    if in_place and name and place.target is tensor:
        _known_tensors.remember(tensor, average, name, op, options, process_set, (chosen, set_id), described,
                                place.shape)
    return remember(name, chosen, set_id, register(handle, place, place.finish))


def allreduce_async(tensor: torch.Tensor, average: Optional[bool] = None, name: Optional[str] = None,
                    op: Optional[int] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                    process_set: ProcessSet = global_process_set) -> int:
    """Starts reducing `tensor` over all ranks of the set into a new tensor.

    Args:
        tensor: a tensor, which need not be contiguous and must not change before synchronize().
        average: deprecated; True or False stand for Average or Sum.
        name: the same on all ranks; counted if None.
        op: Average (default), Sum, Min, Max, Product or Adasum. Averages of integers round towards zero.
        prescale_factor: multiplies each contribution.
        postscale_factor: multiplies the result.
        process_set: the ranks that take part.

    Returns:
        A handle, for which synchronize() returns the new tensor.

    Raises:
        ValueError: the tensor cannot be reduced, or an argument is wrong.
        HorovodInternalError: the daemon refuses the operation.
    """
    return _allreduce(tensor, average, name, op, prescale_factor, postscale_factor, process_set, in_place=False)


def allreduce_async_(tensor: torch.Tensor, average: Optional[bool] = None, name: Optional[str] = None,
                     op: Optional[int] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                     process_set: ProcessSet = global_process_set) -> int:
    """Starts reducing `tensor` over all ranks of the set in place.

    Args:
        tensor, average, name, op, prescale_factor, postscale_factor, process_set: as for allreduce_async().

    Returns:
        A handle, for which synchronize() returns `tensor`.

    Raises:
        ValueError, HorovodInternalError: as for allreduce_async().
    """
    return _allreduce(tensor, average, name, op, prescale_factor, postscale_factor, process_set, in_place=True)


def _grouped_allreduce(tensors: Sequence[Any], average: Optional[bool], name: Optional[str], op: Optional[int],
                       prescale_factor: float, postscale_factor: float, process_set: ProcessSet,
                       in_place: bool) -> int:
    if not isinstance(tensors, (list, tuple)) or len(tensors) == 0:
        raise ValueError("tensors must be a list of at least one tensor")
    options = options_of(chosen_op(op, average), prescale_factor, postscale_factor)
    require_init()
    set_id = id_of(process_set)
    key = (name or "", set_id)
    description = _known_groups.description_of(tensors) if in_place and name else None
    told = _known_groups.find(key, description) if description else None
    if told is not None:
        group = take_name("grouped_allreduce", name, set_id)
        handle = submit("rueda_grouped_allreduce_async", group.encode(), told, len(tensors), byref(options))
        reduced = list(tensors)
        return remember(name, group, set_id, register(handle, told, lambda: reduced))
    for i, tensor in enumerate(tensors):
        check_tensor(tensor, f"tensors[{i}]")
    codes = [code_of(tensor) for tensor in tensors]
    device = _device.of_all(tensors)
    group = take_name("grouped_allreduce", name, set_id)
    through_host = "an Adasum" if options.op == Adasum else None
    places = [_Place(tensor, in_place, through_host) for tensor in tensors]
    count = len(places)
    told = (Tensor * count)(*(place.c_tensor(f"{group}_{i + 1}of{count}", code, set_id)
                              for i, (place, code) in enumerate(zip(places, codes))))
    if device is not None and through_host is None:
        handle = submit_on_device("rueda_device_grouped_allreduce_async", group.encode(), told, count, byref(options),
                                  device.stream_of(tensors[0]))
        leave = _device.OnStream(device, tensors[0], places)
        return remember(name, group, set_id,
                        register(handle, places, lambda: [place.finish() for place in places], leave))
    handle = submit("rueda_grouped_allreduce_async", group.encode(), told, count, byref(options))
    if description and all(place.target is place.caller for place in places):
        _known_groups.remember(key, description, told, [place.shape for place in places])
    return remember(name, group, set_id, register(handle, places, lambda: [place.finish() for place in places]))


def grouped_allreduce_async(tensors: Sequence[torch.Tensor], average: Optional[bool] = None,
                            name: Optional[str] = None, op: Optional[int] = None, prescale_factor: float = 1.0,
                            postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set) -> int:
    """Starts reducing several tensors as one: none is reduced before all are ready on all ranks.

    Args:
        tensors: tensors as for allreduce_async().
        average, name, op, prescale_factor, postscale_factor, process_set: as for allreduce_async().

    Returns:
        A handle, for which synchronize() returns a list of new tensors.

    Raises:
        ValueError, HorovodInternalError: as for allreduce_async().
    """
    return _grouped_allreduce(tensors, average, name, op, prescale_factor, postscale_factor, process_set,
                              in_place=False)


def grouped_allreduce_async_(tensors: Sequence[torch.Tensor], average: Optional[bool] = None,
                             name: Optional[str] = None, op: Optional[int] = None, prescale_factor: float = 1.0,
                             postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set) -> int:
    """Starts reducing several tensors as one, in place.

    Args:
        tensors: tensors as for allreduce_async_().
        average, name, op, prescale_factor, postscale_factor, process_set: as for allreduce_async().

    Returns:
        A handle, for which synchronize() returns the tensors.

    Raises:
        ValueError, HorovodInternalError: as for allreduce_async().
    """
    return _grouped_allreduce(tensors, average, name, op, prescale_factor, postscale_factor, process_set,
                              in_place=True)


def _broadcast(tensor: Any, root_rank: int, name: Optional[str], process_set: ProcessSet, in_place: bool) -> int:
    check_tensor(tensor)
    require_init()
    is_root(root_rank)
    set_id = id_of(process_set)
    place = _Place(tensor, in_place)
    source, target = as_moved(place.source), as_moved(place.target)
    shape = dims_of(source.shape)
    chosen = take_name("broadcast", name, set_id)
    described = c_tensor(chosen, source, target, shape, source.dim(), code_of(source), set_id)
    if place.device is not None:
        handle = submit_on_device("rueda_device_broadcast_async", byref(described), int(root_rank),
                                  place.device.stream_of(tensor))
    else:
        handle = submit("rueda_broadcast_async", byref(described), int(root_rank))
    return remember(name, chosen, set_id, register(handle, (place, shape), place.finish, place.leave()))


def broadcast_async(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None,
                    process_set: ProcessSet = global_process_set) -> int:
    """Starts sending the root's `tensor` to all ranks.

    Args:
        tensor: a tensor; on ranks other than the root it gives only shape and dtype.
        root_rank: the rank in the job whose values are sent.
        name, process_set: as for allreduce_async().

    Returns:
        A handle, for which synchronize() returns a new tensor.

    Raises:
        ValueError, HorovodInternalError: as for allreduce_async().
    """
    return _broadcast(tensor, root_rank, name, process_set, in_place=False)


def broadcast_async_(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None,
                     process_set: ProcessSet = global_process_set) -> int:
    """Starts sending the root's `tensor` to all ranks in place: there `tensor` gets the root's values.

    Args:
        tensor, root_rank, name, process_set: as for broadcast_async().

    Returns:
        A handle, for which synchronize() returns `tensor`.

    Raises:
        ValueError, HorovodInternalError: as for allreduce_async().
    """
    return _broadcast(tensor, root_rank, name, process_set, in_place=True)


def _rows(tensor: Any, what: str) -> torch.Tensor:
    """Returns the tensor in the host's memory. `what` is the name of the collective."""
    check_tensor(tensor)
    if tensor.dim() == 0:
        raise HorovodArgumentError("tensor has no first dimension to be cut; pass tensor.reshape(1)", INVALID_ARGUMENT)
    return contiguous(_device.on_host(tensor, what))


def _begin_with_sizes(name: str, own: List[int], size: int, set_id: int,
                      start: Callable[[np.ndarray], Pending]) -> int:
    try:
        return _parts.begin_with_sizes(name, own, size, set_id, start)
    except RuedaError as error:
        raise horovod_error(error) from None


def begin_allgather(tensor: Any, name: str, set_id: int, with_rows: bool = False) -> int:
    """Starts an allgather. With `with_rows`, the result is a tuple of the tensor and of the numbers of rows that each rank gave.
    """
    source = _rows(tensor, "an allgather")
    moved = as_moved(source)
    code = code_of(moved)
    _, size = _parts.place_in(set_id)

    def start(sizes: np.ndarray) -> Pending:
        target = result_of((int(sizes.sum()), *source.shape[1:]), source.dtype)
        shape, counts = dims_of(moved.shape), dims_of(sizes.tolist())
        described = c_tensor(name, moved, as_moved(target), shape, moved.dim(), code, set_id)
        handle = submit_async("rueda_allgather_async", byref(described), counts)

        def finish() -> Any:
            gathered = _device.back(target, tensor)
            return (gathered, sizes.reshape(size).tolist()) if with_rows else gathered

        return Pending([], handle=handle, finish=finish, memory=(moved, shape))

    return _begin_with_sizes(name, [source.shape[0]], size, set_id, start)


def allgather_async(tensor: torch.Tensor, name: Optional[str] = None,
                    process_set: ProcessSet = global_process_set) -> int:
    """Starts putting the `tensor`s of all ranks one behind the other.

    Args:
        tensor: a tensor of at least one dimension. The first dimension may differ between ranks, the others may not.
        name, process_set: as for allreduce_async().

    Returns:
        A handle, for which synchronize() returns a new tensor, the same on every rank.

    Raises:
        ValueError, HorovodInternalError: as for allreduce_async().
    """
    require_init()
    set_id = id_of(process_set)
    chosen = take_name("allgather", name, set_id)
    return remember(name, chosen, set_id, begin_allgather(tensor, chosen, set_id))


def grouped_allgather_async(tensors: Sequence[torch.Tensor], name: Optional[str] = None,
                            process_set: ProcessSet = global_process_set) -> int:
    """Starts an allgather of each of `tensors`.

    Args:
        tensors: tensors as for allgather_async().
        name, process_set: as for allreduce_async().

    Returns:
        A handle, for which synchronize() returns a list of new tensors.

    Raises:
        ValueError, HorovodInternalError: as for allreduce_async().
    """
    require_init()
    set_id = id_of(process_set)
    return _grouped.begin_group("grouped_allgather", tensors, name, process_set,
                                lambda tensor, member: begin_allgather(tensor, member, set_id))


def _splits_of(splits: Any, rows: int, size: int) -> List[int]:
    if splits is None:
        if rows % size != 0:
            raise ValueError(f"tensor has {rows} rows, which cannot be split equally among {size} ranks; "
                             "pass splits")
        return [rows // size] * size
    given = torch.as_tensor(splits)
    if given.is_floating_point() or given.dim() != 1:
        raise ValueError("splits must be a list, or a tensor of one dimension, of integers")
    own = [int(split) for split in given.tolist()]
    if len(own) != size or min(own) < 0 or sum(own) > rows:
        raise ValueError(f"splits={own} must be {size} numbers from 0 that add up to at most the tensor's "
                         f"{rows} rows")
    return own


def alltoall_async(tensor: torch.Tensor, splits: Optional[Any] = None, name: Optional[str] = None,
                   process_set: ProcessSet = global_process_set) -> int:
    """Starts sending each rank its part of `tensor`'s rows.

    Args:
        tensor: a tensor of at least one dimension.
        splits: the numbers of rows that go to each rank of the set (a list, or a tensor of integers on any device); None means
            equal parts.
        name, process_set: as for allreduce_async().

    Returns:
        A handle, for which synchronize() returns what all ranks sent to this one, one behind the other; with `splits` also the
            numbers of rows that each rank sent.

    Raises:
        ValueError, HorovodInternalError: as for allreduce_async().
    """
    require_init()
    set_id = id_of(process_set)
    source = _rows(tensor, "an alltoall")
    place, size = _parts.place_in(set_id)
    own = _splits_of(splits, source.shape[0], size)
    moved = as_moved(source[:sum(own)])
    code = code_of(moved)
    chosen = take_name("alltoall", name, set_id)

    def start(sizes: np.ndarray) -> Pending:
        received = sizes.reshape(size, size)[:, place]
        target = result_of((int(received.sum()), *source.shape[1:]), source.dtype)
        shape, counts = dims_of(moved.shape), dims_of(sizes.tolist())
        described = c_tensor(chosen, moved, as_moved(target), shape, moved.dim(), code, set_id)
        handle = submit_async("rueda_alltoall_async", byref(described), counts)

        def finish() -> Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]:
            result = _device.back(target, tensor)
            return result if splits is None else (result, torch.tensor(received.tolist(), dtype=torch.int32))

        return Pending([], handle=handle, finish=finish, memory=(moved, shape))

    return remember(name, chosen, set_id, _begin_with_sizes(chosen, own, size, set_id, start))


def begin_reducescatter(tensor: Any, name: str, op: int, prescale_factor: float, postscale_factor: float,
                        set_id: int, rows_of: Optional[Sequence[int]] = None) -> int:
    """Starts a reducescatter. `rows_of` has the numbers of rows that each rank gets; None means that they are as even as can be.
    """
    source = _rows(tensor, "a reducescatter")
    code = code_of(source)
    options = options_of(op, prescale_factor, postscale_factor)
    place, size = _parts.place_in(set_id)
    even = source.shape[0] // size + (1 if place < source.shape[0] % size else 0)
    rows = even if rows_of is None else rows_of[place]
    target = result_of((rows, *source.shape[1:]), source.dtype)
    shape = dims_of(source.shape)
    described = c_tensor(name, source, target, shape, source.dim(), code, set_id)
    counts = None if rows_of is None else dims_of(rows_of)
    handle = submit("rueda_reduce_scatter_async", byref(described), counts, byref(options))
    return register(handle, (source, shape), lambda: _device.back(target, tensor))


def reducescatter_async(tensor: torch.Tensor, name: Optional[str] = None, op: int = Average,
                        process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                        postscale_factor: float = 1.0) -> int:
    """Starts reducing `tensor` over all ranks, each of which gets a part of the rows. Parts are as even as can be; the first
    ranks have one row more.

    Args:
        tensor, name, op, process_set, prescale_factor, postscale_factor: as for allreduce_async().

    Returns:
        A handle, for which synchronize() returns this rank's part as a new tensor.

    Raises:
        ValueError, HorovodInternalError: as for allreduce_async().
    """
    require_init()
    set_id = id_of(process_set)
    chosen = take_name("reducescatter", name, set_id)
    handle = begin_reducescatter(tensor, chosen, op, prescale_factor, postscale_factor, set_id)
    return remember(name, chosen, set_id, handle)


def grouped_reducescatter_async(tensors: Sequence[torch.Tensor], name: Optional[str] = None, op: int = Average,
                                process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                                postscale_factor: float = 1.0) -> int:
    """Starts a reducescatter of each of `tensors`.

    Args:
        tensors: tensors as for reducescatter_async().
        name, op, process_set, prescale_factor, postscale_factor: as for allreduce_async().

    Returns:
        A handle, for which synchronize() returns a list of new tensors.

    Raises:
        ValueError, HorovodInternalError: as for allreduce_async().
    """
    require_init()
    set_id = id_of(process_set)

    def begin(tensor: torch.Tensor, member: str) -> int:
        return begin_reducescatter(tensor, member, op, prescale_factor, postscale_factor, set_id)

    return _grouped.begin_group("grouped_reducescatter", tensors, name, process_set, begin)


def poll(handle: Handle) -> bool:
    """Returns True if synchronize(handle) would return at once."""
    if not isinstance(handle, int):
        return bool(handle.poll())  # type: ignore[attr-defined]
    try:
        return _operations.poll(handle)
    except RuedaError as error:
        raise horovod_error(error) from None


def synchronize(handle: Handle) -> Any:
    """Waits for an operation and returns its result, or None if the handle has been synchronized already. For a tensor in a GPU's
    memory the current stream waits, and this thread does not; if the operation fails after that, the next such call raises.

    Args:
        handle: what the function that started the operation returned.

    Returns:
        A tensor, or a list for a group.

    Raises:
        HorovodInternalError: the operation failed.
    """
    if not isinstance(handle, int):
        return handle()
    return _synchronize(handle) if _operations.is_in_flight(handle) else None


def join(device: int = -1) -> int:
    """Says that this rank has no more data: until all ranks have joined it contributes zeros.

    Args:
        device: not used.

    Returns:
        The rank that joined last.
    """
    try:
        return _operations.join()
    except RuedaError as error:
        raise horovod_error(error) from None


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when every rank of the set has called it."""
    try:
        _operations.barrier(process_set=process_set)
    except RuedaError as error:
        raise horovod_error(error) from None


__all__ = ["allgather_async", "allreduce_async", "allreduce_async_", "alltoall_async", "barrier", "broadcast_async",
           "broadcast_async_", "grouped_allgather_async", "grouped_allreduce_async",
           "grouped_allreduce_async_", "grouped_reducescatter_async", "join", "poll", "reducescatter_async",
           "synchronize"]
