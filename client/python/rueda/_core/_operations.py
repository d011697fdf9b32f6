"""Implements collectives over NumPy arrays. Every function may be called from any thread.

Handles are ints. A handle keeps its arrays alive until synchronize() has returned, also when that raised RuedaTimeoutError. Names
must be the same on all ranks and unique among the operations in flight. A call without a name gets one that is counted per
function (_counted.py), so all ranks must make the same calls in the same order."""

from __future__ import annotations

import ctypes
import dataclasses
import enum
import itertools
import math
import operator
import threading
import time
from typing import Any, Callable, NamedTuple, Optional, Sequence, Union, cast

import numpy as np

from . import _counted, _library
from ._dtypes import as_array, code_of, wire_code_of
from ._errors import TIMEOUT, RuedaError, RuedaTimeoutError, error_for
from ._library import ReduceOptions, Result, Tensor, byref, check
from ._memory import empty
from ._process_sets import ProcessSet, id_of


class ReduceOp(enum.IntEnum):
    """Says how contributions are combined. Average of integers rounds towards zero. Complex numbers have neither Min nor Max.
    Adasum, which is for floating point and all-reduces alone, counts only once what contributions have in common (Maleki et al.
    2021)."""

    Sum = 0
    Average = 1
    Min = 2
    Max = 3
    Product = 4
    Adasum = 5


Sum = ReduceOp.Sum
Average = ReduceOp.Average
Min = ReduceOp.Min
Max = ReduceOp.Max
Product = ReduceOp.Product
Adasum = ReduceOp.Adasum

Synchronized = Union[np.ndarray, "list[np.ndarray]", None]

# A result of this size or more lives in the arena, with one copy instead of two. For smaller ones NumPy's allocator is faster.
_ARENA_RESULT_BYTES = 64 * 1024
# A waiting thread wakes this often, for signal handlers (Ctrl-C) and for sizes that another thread has begun to exchange.
_SIGNAL_SLICE_MS = 500


class Slot(NamedTuple):
    """Holds one tensor of an operation in flight. The arrays are referenced so that their memory lives."""

    source: np.ndarray  # the memory that librueda reads
    target: Optional[np.ndarray]  # the memory that it writes; may be source; None: this rank gets nothing
    returned: Optional[np.ndarray]  # the caller's result
    shape: Any


@dataclasses.dataclass
class Pending:
    """Holds what a handle stands for. For an operation whose ranks tell each other their sizes first, it is that exchange, until
    start() can begin the operation."""

    slots: "list[Slot]"
    is_list: bool = False
    handle: int = 0  # librueda's; 0 if the exchange has ended, or if there are members
    finish: Optional[Callable[[], Any]] = None  # makes the result; None: the result is in the slots
    start: "Optional[Callable[[], Pending]]" = None
    memory: Any = None  # other memory that must live as long
    leave: "Optional[Callable[[int], None]]" = None  # lets a stream wait for librueda's handle, and not the host
    error: Optional[BaseException] = None  # the error of the exchange, or of start()
    members: "Optional[list[int]]" = None  # the handles of a group that have not been synchronized yet
    results: "Optional[list[Any]]" = None  # the results of its other handles
    told: Optional[Result] = None  # is filled in when the operation has ended


_pending: "dict[int, Pending]" = {}
_sizing: "dict[int, Pending]" = {}  # the operations in _pending that wait for sizes
_sizing_lock = threading.Lock()
_own_handles = itertools.count(-1, -1)  # librueda's are positive


def reset() -> None:
    """Forgets handles and automatic names. It is called by init(), so that all ranks count from 1, and by shutdown()."""
    with _sizing_lock:
        _pending.clear()
        _sizing.clear()
    _counted.reset()


def require_init() -> None:
    library = _library.loaded()
    if library is None or library.rueda_is_initialized() != 1:
        if library is not None and library.rueda_rank() == -1:  # in a forked child the library reports it
            check(library.rueda_rank())
        raise ValueError("Rueda has not been initialized; use rueda.init().")


def is_root(root_rank: int) -> bool:
    """Returns whether this rank is the root, which must be one of the job's ranks."""
    root_rank = operator.index(root_rank)  # raises for 1.5, which is not rank 1
    library = _library.load()
    ranks = check(library.rueda_size())
    if not 0 <= root_rank < ranks:
        raise ValueError(f"root_rank={root_rank} is not one of the ranks 0 to {ranks - 1}")
    return bool(check(library.rueda_rank()) == root_rank)


def name_for(function: str, name: Optional[str], set_id: int = 0) -> str:
    """Returns the name that was given, or Horovod's automatic one: allreduce.noname.1, allreduce.noname.2, ... Each process set
    counts for itself. The handle of the call must be passed to keep_counted()."""
    if name is None:
        chosen = _counted.next_name(function, set_id)
        _await_end(_counted.last_handle(chosen, set_id))
        return chosen
    if not isinstance(name, str):
        raise TypeError(f"name must be a str, not {type(name).__name__}")
    if not name or len(name.encode()) > 255 or "\0" in name:
        raise ValueError(f"name {name!r} must have 1 to 255 bytes, none of them NUL")
    return name


def keep_counted(name: Optional[str], chosen: str, set_id: int, handle: int) -> int:
    """Remembers `handle` as that of the call whose name name_for(function, name, set_id) gave."""
    if name is None:
        _counted.remember(chosen, set_id, handle)
    return handle


def make_options(op: int, prescale_factor: float, postscale_factor: float, priority: int = 0,
                 wire_dtype: Optional[str] = None) -> ReduceOptions:
    try:
        chosen = ReduceOp(op)
    except ValueError:
        raise ValueError(f"op={op!r} is unknown; use rueda.Average, Sum, Min, Max, Product or Adasum") from None
    for factor in (prescale_factor, postscale_factor):
        if not math.isfinite(factor):
            raise ValueError(f"a scale factor must be finite, not {factor}")
    if not -2**31 <= priority < 2**31:
        raise ValueError(f"priority={priority} has more than 32 bits")
    return ReduceOptions(ctypes.sizeof(ReduceOptions), chosen, prescale_factor, postscale_factor, priority,
                         wire_code_of(wire_dtype))


def result_of(shape: "tuple[int, ...]", dtype: Any) -> np.ndarray:
    """Returns memory for a result."""
    if math.prod(shape) * np.dtype(dtype).itemsize >= _ARENA_RESULT_BYTES:
        return empty(shape, dtype)
    return np.empty(shape, dtype)


def _make_slot(array: np.ndarray, in_place: bool, reads: bool = True) -> Slot:
    shape = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
    is_contiguous = array.flags.c_contiguous and array.flags.aligned
    if in_place:
        if not array.flags.writeable:
            raise ValueError("the array is read-only; use the form that returns a new one")
        if is_contiguous:
            return Slot(array, array, array, shape)
    result = result_of(array.shape, array.dtype)
    if is_contiguous:
        return Slot(array, result, result, shape)
    if reads:
        result[...] = array  # made contiguous, and reduced in place
    return Slot(result, result, array if in_place else result, shape)


def _c_tensor(slot: Slot, name: str, code: int, set_id: int) -> Tensor:
    assert slot.target is not None
    return Tensor(name.encode(), slot.source.ctypes.data, slot.target.ctypes.data, slot.shape,
                  slot.target.ndim, code, set_id)


def register(handle: int, slots: "list[Slot]", is_list: bool = False) -> int:
    return register_pending(Pending(slots, is_list, handle))


def register_pending(pending: Pending) -> int:
    _pending[pending.handle] = pending
    return pending.handle


def register_members(handles: "list[int]") -> int:
    """Makes one handle for several; its result is the list of their results."""
    own = next(_own_handles)
    _pending[own] = Pending([], members=handles, results=[])
    return own


def library_handle_of(handle: int) -> int:
    """Returns librueda's handle. Raises ValueError for an unknown handle."""
    return _known(handle).handle


def is_in_flight(handle: int) -> bool:
    return handle in _pending


def begin_sized(handle: int, memory: Any, start: "Callable[[], Pending]") -> int:
    """Registers an exchange of sizes, whose handle is `handle` and whose memory is `memory`. When the exchange has ended, start()
    begins the operation."""
    own = next(_own_handles)
    pending = Pending([], handle=handle, start=start, memory=memory)
    with _sizing_lock:
        _pending[own] = _sizing[own] = pending
    return own


def what_waits_for_sizes() -> "dict[int, Pending]":
    """Returns the operations whose sizes are still to come. The collection changes all the time."""
    return _sizing


def _start_sized() -> None:
    """Begins all operations whose sizes are known by now. Any rank may wait for any of them, so all are looked at, whichever one
    the caller waits for."""
    with _sizing_lock:
        for own, pending in list(_sizing.items()):
            done = ctypes.c_int()
            try:
                if pending.handle:
                    check(_library.load().rueda_test(pending.handle, byref(done)))
                    if not done.value:
                        continue
                    check(_library.load().rueda_wait(pending.handle, -1, None))
                    pending.handle = 0  # the sizes are here; Ctrl-C may come before the next line
                assert pending.start is not None
                _pending[own] = pending.start()
            except Exception as error:  # whoever synchronizes the operation gets the error
                pending.error = error
            _sizing.pop(own, None)


def _await_any(handles: "list[int]", timeout_ms: int) -> None:
    """Waits until one of the operations has ended. Another thread may end one meanwhile, so the caller looks again."""
    index = ctypes.c_size_t()
    array = (ctypes.c_uint64 * len(handles))(*handles)
    _library.load().rueda_wait_any(array, len(handles), timeout_ms, byref(index))


def _await_end(handle: int) -> None:
    """Waits until an operation has ended, well or not. Its handle stays valid for whoever synchronizes it."""
    try:
        while is_in_flight(handle) and not poll(handle):
            members = _known(handle).members or [handle]
            under_way = [_known(member) for member in members if not poll(member)] + list(_sizing.values())
            if handles := [pending.handle for pending in under_way if pending.handle]:
                _await_any(handles, _SIGNAL_SLICE_MS)
    except ValueError:  # another thread has synchronized it
        return


def _allreduce(tensor: Any, name: Optional[str], op: int, prescale_factor: float,
               postscale_factor: float, dtype: Optional[str], process_set: Optional[ProcessSet],
               priority: int, wire_dtype: Optional[str], in_place: bool) -> int:
    array = as_array(tensor)
    code = code_of(array, dtype)
    options = make_options(op, prescale_factor, postscale_factor, priority, wire_dtype)
    require_init()
    set_id = id_of(process_set)
    slot = _make_slot(array, in_place)
    chosen = name_for("allreduce", name, set_id)
    c_tensor = _c_tensor(slot, chosen, code, set_id)
    handle = ctypes.c_uint64()
    check(_library.load().rueda_allreduce_async(byref(c_tensor), byref(options), byref(handle)))
    return keep_counted(name, chosen, set_id, register(handle.value, [slot]))


def allreduce_async(tensor: np.ndarray, name: Optional[str] = None, op: int = Average,
                    prescale_factor: float = 1.0, postscale_factor: float = 1.0, *,
                    dtype: Optional[str] = None,
        process_set: Optional[ProcessSet] = None, priority: int = 0,
        wire_dtype: Optional[str] = None) -> int:
    """Starts reducing `tensor` over all ranks into a new array.

    Args:
        tensor: an array of the same shape (0 to 8 dimensions, zero size too) and dtype on every rank: float16, float32, float64,
            an integer of 8 to 64 bits, bool, complex64, complex128, or bfloat16 (ml_dtypes' type, or uint16 bits with
            dtype="bfloat16"). It may be read-only or not contiguous, and must not change before synchronize().
        name: the same on all ranks, and unique among the operations in flight; counted if None.
        op: a ReduceOp.
        prescale_factor: multiplies each contribution.
        postscale_factor: multiplies the result.
        dtype: "bfloat16" for uint16 bits, otherwise None.
        process_set: the ranks that take part, as for all collectives; this process must be one of them. None means all ranks.
        priority: of the operations under way, those with a higher priority go first on this node's network. If all have 0, the
            operation that was submitted last goes first, because the next forward pass needs it first.
        wire_dtype: "float16" or "bfloat16" rounds the values of float32 arrays that cross the network between nodes. It must be
            the same on all ranks, which get the same bits.

    Returns:
        A handle, for which synchronize() returns the new array.

    Raises:
        TypeError, ValueError: an argument is wrong.
        RuedaError: the daemon refuses the operation.
    """
    return _allreduce(tensor, name, op, prescale_factor, postscale_factor, dtype, process_set,
                      priority, wire_dtype, in_place=False)


def allreduce_async_(tensor: np.ndarray, name: Optional[str] = None, op: int = Average,
                     prescale_factor: float = 1.0, postscale_factor: float = 1.0, *,
                     dtype: Optional[str] = None,
        process_set: Optional[ProcessSet] = None, priority: int = 0,
        wire_dtype: Optional[str] = None) -> int:
    """Starts reducing `tensor` over all ranks in place.

    Args:
        tensor: a writable array, otherwise as for allreduce_async(). It has the result once synchronize() has
            returned.
        name, op, prescale_factor, postscale_factor, dtype, process_set, priority, wire_dtype: as for allreduce_async().

    Returns:
        A handle, for which synchronize() returns `tensor`.

    Raises:
        TypeError, ValueError, RuedaError: as for allreduce_async().
    """
    return _allreduce(tensor, name, op, prescale_factor, postscale_factor, dtype, process_set,
                      priority, wire_dtype, in_place=True)


def allreduce(tensor: np.ndarray, name: Optional[str] = None, op: int = Average,
              prescale_factor: float = 1.0, postscale_factor: float = 1.0, *,
              dtype: Optional[str] = None,
        process_set: Optional[ProcessSet] = None, priority: int = 0,
        wire_dtype: Optional[str] = None, timeout: Optional[float] = None) -> np.ndarray:
    """Reduces `tensor` over all ranks into a new array of its shape and dtype.

    Args:
        tensor, name, op, prescale_factor, postscale_factor, dtype, process_set, priority, wire_dtype: as for allreduce_async().
        timeout: seconds to wait for the result; None waits for ever.

    Returns:
        The new array.

    Raises:
        TypeError, ValueError: an argument is wrong.
        RuedaTimeoutError: the time was up; the operation stays in flight.
        RuedaInternalError: a rank, a node or the daemon is lost.
        RuedaError: the ranks disagree on the tensor, or the daemon refuses the operation.
    """
    return _array(synchronize(allreduce_async(tensor, name, op, prescale_factor, postscale_factor,
                                              dtype=dtype, process_set=process_set, priority=priority,
                                              wire_dtype=wire_dtype), timeout))


def allreduce_(tensor: np.ndarray, name: Optional[str] = None, op: int = Average,
               prescale_factor: float = 1.0, postscale_factor: float = 1.0, *,
               dtype: Optional[str] = None,
        process_set: Optional[ProcessSet] = None, priority: int = 0,
        wire_dtype: Optional[str] = None, timeout: Optional[float] = None) -> np.ndarray:
    """Reduces `tensor` over all ranks in place.

    Args:
        tensor: as for allreduce_async_().
        name, op, prescale_factor, postscale_factor, dtype, process_set, priority, wire_dtype, timeout: as for allreduce().

    Returns:
        `tensor`.

    Raises:
        TypeError, ValueError, RuedaError: as for allreduce().
    """
    return _array(synchronize(allreduce_async_(tensor, name, op, prescale_factor, postscale_factor,
                                               dtype=dtype, process_set=process_set, priority=priority,
                                               wire_dtype=wire_dtype), timeout))


def _grouped_allreduce(tensors: Sequence[np.ndarray], name: Optional[str], op: int,
                       prescale_factor: float, postscale_factor: float,
                       process_set: Optional[ProcessSet], priority: int, wire_dtype: Optional[str],
                       in_place: bool) -> int:
    if isinstance(tensors, np.ndarray) or len(tensors) == 0:
        raise ValueError("tensors must be a list of at least one array")
    arrays = [as_array(tensor, f"tensors[{i}]") for i, tensor in enumerate(tensors)]
    codes = [code_of(array) for array in arrays]
    options = make_options(op, prescale_factor, postscale_factor, priority, wire_dtype)
    require_init()
    set_id = id_of(process_set)
    group = name_for("grouped_allreduce", name, set_id)
    slots = [_make_slot(array, in_place) for array in arrays]
    count = len(slots)
    c_tensors = (Tensor * count)(*(_c_tensor(slot, f"{group}_{i + 1}of{count}", code, set_id)
                                   for i, (slot, code) in enumerate(zip(slots, codes))))
    handle = ctypes.c_uint64()
    check(_library.load().rueda_grouped_allreduce_async(group.encode(), c_tensors, count,
                                                        byref(options), byref(handle)))
    return keep_counted(name, group, set_id, register(handle.value, slots, is_list=True))


def grouped_allreduce_async(tensors: Sequence[np.ndarray], name: Optional[str] = None,
                            op: int = Average, prescale_factor: float = 1.0,
                            postscale_factor: float = 1.0, *,
                            process_set: Optional[ProcessSet] = None, priority: int = 0,
                            wire_dtype: Optional[str] = None) -> int:
    """Starts reducing several arrays as one: none is reduced before all of them are ready on all ranks.

    Args:
        tensors: arrays as for allreduce_async(). They may differ in shape and dtype.
        name: the name of the group; counted if None. Members are named NAME_1ofN, NAME_2ofN, ... as Horovod does.
        op, prescale_factor, postscale_factor, process_set, priority, wire_dtype: as for allreduce_async().

    Returns:
        A handle, for which synchronize() returns a list of new arrays.

    Raises:
        TypeError, ValueError, RuedaError: as for allreduce_async().
    """
    return _grouped_allreduce(tensors, name, op, prescale_factor, postscale_factor, process_set,
                              priority, wire_dtype, in_place=False)


def grouped_allreduce_async_(tensors: Sequence[np.ndarray], name: Optional[str] = None,
                             op: int = Average, prescale_factor: float = 1.0,
                             postscale_factor: float = 1.0, *,
                             process_set: Optional[ProcessSet] = None, priority: int = 0,
                             wire_dtype: Optional[str] = None) -> int:
    """Starts reducing several arrays as one, in place.

    Args:
        tensors: arrays as for allreduce_async_(). They may differ in shape and dtype.
        name, op, prescale_factor, postscale_factor, process_set, priority, wire_dtype: as for grouped_allreduce_async().

    Returns:
        A handle, for which synchronize() returns the arrays.

    Raises:
        TypeError, ValueError, RuedaError: as for allreduce_async().
    """
    return _grouped_allreduce(tensors, name, op, prescale_factor, postscale_factor, process_set,
                              priority, wire_dtype, in_place=True)


def grouped_allreduce(tensors: Sequence[np.ndarray], name: Optional[str] = None, op: int = Average,
                      prescale_factor: float = 1.0, postscale_factor: float = 1.0, *,
                      process_set: Optional[ProcessSet] = None, priority: int = 0,
                      wire_dtype: Optional[str] = None,
                      timeout: Optional[float] = None) -> "list[np.ndarray]":
    """Reduces several arrays as one, and waits for the result.

    Args:
        tensors, name, op, prescale_factor, postscale_factor, process_set, priority, wire_dtype: as for grouped_allreduce_async().
        timeout: seconds, as for allreduce().

    Returns:
        A list of new arrays.

    Raises:
        TypeError, ValueError, RuedaError: as for allreduce().
    """
    handle = grouped_allreduce_async(tensors, name, op, prescale_factor, postscale_factor,
                                     process_set=process_set, priority=priority, wire_dtype=wire_dtype)
    result = synchronize(handle, timeout)
    assert isinstance(result, list)
    return result


def grouped_allreduce_(tensors: Sequence[np.ndarray], name: Optional[str] = None, op: int = Average,
                       prescale_factor: float = 1.0, postscale_factor: float = 1.0, *,
                       process_set: Optional[ProcessSet] = None, priority: int = 0,
                       wire_dtype: Optional[str] = None,
                       timeout: Optional[float] = None) -> "list[np.ndarray]":
    """Reduces several arrays as one, in place, and waits for the result.

    Args:
        tensors, name, op, prescale_factor, postscale_factor, process_set, priority, wire_dtype: as for
            grouped_allreduce_async_().
        timeout: seconds, as for allreduce().

    Returns:
        The arrays.

    Raises:
        TypeError, ValueError, RuedaError: as for allreduce().
    """
    handle = grouped_allreduce_async_(tensors, name, op, prescale_factor, postscale_factor,
                                      process_set=process_set, priority=priority, wire_dtype=wire_dtype)
    result = synchronize(handle, timeout)
    assert isinstance(result, list)
    return result


def _broadcast(tensor: Any, root_rank: int, name: Optional[str], dtype: Optional[str],
               process_set: Optional[ProcessSet], in_place: bool) -> int:
    array = as_array(tensor)
    code = code_of(array, dtype)
    require_init()
    slot = _make_slot(array, in_place, reads=is_root(root_rank))
    set_id = id_of(process_set)
    chosen = name_for("broadcast", name, set_id)
    c_tensor = _c_tensor(slot, chosen, code, set_id)
    handle = ctypes.c_uint64()
    check(_library.load().rueda_broadcast_async(byref(c_tensor), int(root_rank), byref(handle)))
    return keep_counted(name, chosen, set_id, register(handle.value, [slot]))


def broadcast_async(tensor: np.ndarray, root_rank: int, name: Optional[str] = None, *,
                    dtype: Optional[str] = None,
        process_set: Optional[ProcessSet] = None) -> int:
    """Starts sending the root's `tensor` to all ranks.

    Args:
        tensor: an array as for allreduce_async(). On ranks other than the root it gives only shape and dtype.
        root_rank: the rank in the job whose values are sent.
        name, dtype, process_set: as for allreduce_async().

    Returns:
        A handle, for which synchronize() returns a new array.

    Raises:
        TypeError, ValueError, RuedaError: as for allreduce_async().
    """
    return _broadcast(tensor, root_rank, name, dtype, process_set, in_place=False)


def broadcast_async_(tensor: np.ndarray, root_rank: int, name: Optional[str] = None, *,
                     dtype: Optional[str] = None,
        process_set: Optional[ProcessSet] = None) -> int:
    """Starts sending the root's `tensor` to all ranks in place: there `tensor` gets the root's values.

    Args:
        tensor: a writable array.
        root_rank, name, dtype, process_set: as for broadcast_async().

    Returns:
        A handle, for which synchronize() returns `tensor`.

    Raises:
        TypeError, ValueError, RuedaError: as for allreduce_async().
    """
    return _broadcast(tensor, root_rank, name, dtype, process_set, in_place=True)


def broadcast(tensor: np.ndarray, root_rank: int, name: Optional[str] = None, *,
              dtype: Optional[str] = None,
        process_set: Optional[ProcessSet] = None, timeout: Optional[float] = None) -> np.ndarray:
    """Returns the root's `tensor` as a new array on every rank.

    Args:
        tensor, root_rank, name, dtype, process_set: as for broadcast_async().
        timeout: seconds, as for allreduce().

    Returns:
        The new array.

    Raises:
        TypeError, ValueError, RuedaError: as for allreduce().
    """
    return _array(synchronize(broadcast_async(tensor, root_rank, name, dtype=dtype, process_set=process_set), timeout))


def broadcast_(tensor: np.ndarray, root_rank: int, name: Optional[str] = None, *,
               dtype: Optional[str] = None,
        process_set: Optional[ProcessSet] = None, timeout: Optional[float] = None) -> np.ndarray:
    """Gives `tensor` the root's values on every rank, in place.

    Args:
        tensor, root_rank, name, dtype, process_set: as for broadcast_async_().
        timeout: seconds, as for allreduce().

    Returns:
        `tensor`.

    Raises:
        TypeError, ValueError, RuedaError: as for allreduce().
    """
    return _array(synchronize(broadcast_async_(tensor, root_rank, name, dtype=dtype, process_set=process_set), timeout))


def barrier(name: Optional[str] = None, *, process_set: Optional[ProcessSet] = None,
            timeout: Optional[float] = None) -> None:
    """Returns when every rank (of the set) has called it.

    Args:
        name: the same on all ranks; counted if None.
        process_set: the ranks that take part; all ranks if None.
        timeout: seconds, as for allreduce().

    Raises:
        RuedaError: as for allreduce().
    """
    chosen = "barrier" if name is None else name_for("barrier", name)
    require_init()
    handle = ctypes.c_uint64()
    check(_library.load().rueda_process_set_barrier_async(id_of(process_set), chosen.encode(),
                                                          byref(handle)))
    synchronize(register(handle.value, []), timeout)


def join(*, timeout: Optional[float] = None) -> int:
    """Says that this rank has no more data, for uneven inputs, and waits until all ranks have joined.

    Until then the others' operations go on, and this rank contributes zeros; averages divide by the number of all ranks.
    Operations that this rank has submitted before use its values. Meanwhile everything except sums, averages and barriers fails
    on the ranks that ask for it.

    Args:
        timeout: seconds to wait; None waits for ever.

    Returns:
        The rank that joined last.

    Raises:
        RuedaTimeoutError: the time was up; this rank stays joined.
    """
    require_init()
    handle = ctypes.c_uint64()
    check(_library.load().rueda_join_async(byref(handle)))
    result = Result()
    register(handle.value, [])
    code = _wait(handle.value, timeout, result)
    _pending.pop(handle.value, None)
    if code == TIMEOUT:
        raise error_for(code, _timeout_text(timeout, _library.last_error()))
    check(code)
    _counted.reset()  # the ranks have made different numbers of calls
    return int(result.value)


def poll(handle: int) -> bool:
    """Returns True if synchronize(handle) would return, or raise, at once.

    Raises:
        ValueError: the handle is unknown.
    """
    if _sizing:
        _start_sized()
    with _sizing_lock:  # another thread may begin the operation, which then has another handle of librueda's
        pending = _known(handle)
        if handle in _sizing:
            return False
    if pending.members is not None:
        return all(poll(member) for member in pending.members)
    if pending.error is not None:
        return True
    done = ctypes.c_int()
    check(_library.load().rueda_test(pending.handle, byref(done)))
    return done.value != 0


def synchronize(handle: int, timeout: Optional[float] = None) -> Synchronized:
    """Sleeps until the operation has ended and returns its result.

    Ctrl-C interrupts the wait, within half a second, and leaves the handle valid. For tensors in a GPU's memory and without a
    timeout, the caller's stream waits, and the host does not.

    Args:
        handle: what the function that started the operation returned.
        timeout: seconds to wait; None waits for ever.

    Returns:
        An array, a list for a group, or for a recv_async() the rank that sent.

    Raises:
        RuedaTimeoutError: the time was up; the operation stays in flight and the handle valid. After any other end the handle is
            unknown.
        RuedaError: the operation failed.
        ValueError: the handle is unknown.
    """
    if _known(handle).members is not None:
        return _synchronize_members(handle, timeout)
    if timeout is None and _known(handle).leave is not None:
        return _leave(handle)
    code = _wait(handle, timeout, _known(handle).told)
    if code == TIMEOUT:
        raise error_for(code, _timeout_text(timeout, _library.last_error()))
    pending = _known(handle)
    _pending.pop(handle, None)
    if pending.error is not None:
        raise pending.error
    check(code)
    for slot in pending.slots:
        if slot.returned is not slot.target and slot.returned is not None:
            slot.returned[...] = slot.target
    if pending.finish is not None:
        return cast(Synchronized, pending.finish())
    if pending.is_list:
        return [cast(np.ndarray, slot.returned) for slot in pending.slots]
    return pending.slots[0].returned if pending.slots else None


def _leave(handle: int) -> Synchronized:
    pending = _pending.pop(handle)
    assert pending.leave is not None and pending.finish is not None
    pending.leave(pending.handle)
    return cast(Synchronized, pending.finish())


def _synchronize_members(handle: int, timeout: Optional[float]) -> Synchronized:
    pending = _known(handle)
    assert pending.members is not None and pending.results is not None
    deadline = None if timeout is None else time.monotonic() + timeout
    while pending.members:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            pending.results.append(synchronize(pending.members[0], left))
        except RuedaTimeoutError:
            raise
        except RuedaError as error:  # the other operations end before the caller gets the error
            pending.error = pending.error or error
        pending.members.pop(0)
    _pending.pop(handle, None)
    if pending.error is not None:
        raise pending.error
    return pending.results


def _wait(handle: int, timeout: Optional[float], result: Optional[Result] = None) -> int:
    wait = _library.load().rueda_wait
    told = None if result is None else byref(result)
    while timeout is None and not _sizing:  # nearly always there is nothing else to look after
        code = int(wait(_known(handle).handle, _SIGNAL_SLICE_MS, told))
        if code != TIMEOUT:
            return code
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        left_ms = math.inf if deadline is None else max(0, math.ceil((deadline - time.monotonic()) * 1e3))
        slice_ms = int(min(left_ms, _SIGNAL_SLICE_MS))
        is_over = deadline is not None and left_ms == 0
        if _sizing:
            # Operations that others wait for must go on, too.
            _await_any([_known(handle).handle, *(item.handle for item in list(_sizing.values()))], slice_ms)
            code = TIMEOUT
            if poll(handle):
                pending = _known(handle)
                code = 0 if pending.error is not None else int(wait(pending.handle, -1, told))
        else:
            code = int(wait(_known(handle).handle, slice_ms, told))
        if code != TIMEOUT or is_over:
            return code


def _timeout_text(timeout: Optional[float], text: str) -> str:
    """Replaces the time in librueda's text, which is that of the last slice of the wait, by the time that the caller gave."""
    head, found, tail = text.partition(" did not finish within ")
    return f"{head}{found}{timeout} s{tail[tail.find(';'):]}" if found and ";" in tail else text


def _known(handle: int) -> Pending:
    pending = _pending.get(handle)
    if pending is None:
        raise ValueError(f"handle {handle!r} is not in flight; each may be synchronized once")
    return pending


def _array(result: Synchronized) -> np.ndarray:
    assert isinstance(result, np.ndarray)
    return result
