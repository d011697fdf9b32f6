"""Joins and leaves the job, and tells this process's place in it."""

from __future__ import annotations

import os
from typing import NamedTuple, Optional, Sequence, Union

from . import _library, _operations, _process_sets, _stream_pending
from ._errors import INVALID_ARGUMENT, RuedaError
from ._library import InitOptions, byref, check


_sessions = 0


_SHUTDOWN_S = 5.0  # as long as librueda waits


class Stats(NamedTuple):
    """Counters of this process since init().

    Attributes:
        bytes_copied_in: bytes that were copied into the arena, because their memory was not from rueda.empty().
        bytes_copied_out: bytes that were copied back from the arena for the same reason.
        arena_bytes: bytes of memory that this process shares with the daemon.
    """

    submissions: int
    completions: int
    bytes_copied_in: int
    bytes_copied_out: int
    arena_bytes: int


def init(process_sets: Optional[Sequence[_process_sets.Ranks]] = None, *,
         socket: Optional[str] = None, timeout: Optional[float] = None) -> None:
    """Attaches to the node's daemon and waits until every rank of the job has done so.

    ruedarun sets what is needed in the environment. A second call does nothing. No other function may run at the same time.

    Args:
        process_sets: process sets (or lists of ranks) to be added, the same on all ranks. Without it, those of
            $RUEDA_PROCESS_SETS ("0,1;2,3") are added.
        socket: the daemon's socket; overrides $RUEDA_SOCKET.
        timeout: seconds for all ranks to arrive; overrides $RUEDA_START_TIMEOUT_MS. The default is 60.

    Raises:
        RuedaError: the process could not attach; the text says how to start a daemon, or which variable is missing.
        ImportError: librueda was not found.
        ValueError: `timeout` is not positive.
    """
    if timeout is not None and timeout <= 0:
        raise ValueError(f"timeout must be positive, not {timeout}")
    if is_initialized():
        return
    sets = _process_sets.initial(process_sets)
    options = InitOptions(rank=-1, local_rank=-1)
    options.struct_bytes = _library.sizeof(options)
    options.socket = socket.encode() if socket is not None else None
    options.timeout_ms = max(1, int(timeout * 1000)) if timeout is not None else 0
    check(_library.load().rueda_init(byref(options)))
    _begin_session()
    for ranks in sets:
        _process_sets.add_process_set(ranks)


def shutdown() -> None:
    """Waits for operations in flight (5 s at most), leaves the job and frees everything except the arrays of rueda.empty(), which
    stay readable.

    init() may follow. The call does nothing before init(). No other function may run at the same time.

    Raises:
        RuedaTimeoutError: operations were left in flight.
        RuedaError: an operation that a stream waits for has failed.
    """
    library = _library.loaded()
    if library is None:
        return
    try:
        if is_initialized():
            _stream_pending.finish(_SHUTDOWN_S)
        check(library.rueda_shutdown())
    finally:
        _begin_session()


def _begin_session() -> None:
    global _sessions
    _sessions += 1
    _stream_pending.reset()
    _operations.reset()
    _process_sets.reset()


def session() -> int:
    """Returns a number that differs after each init() and shutdown(): memory and ids of an earlier session do not belong to this
    one."""
    return _sessions


def is_initialized() -> bool:
    """Returns True between init() and shutdown(), and False in a forked child."""
    library = _library.loaded()
    return library is not None and library.rueda_is_initialized() == 1


def _place(function: str) -> int:
    _operations.require_init()
    return check(getattr(_library.load(), function)())


def rank() -> int:
    """Returns this process's rank in the job, from 0 to size() - 1.

    Raises:
        ValueError: init() has not been called. The functions below raise it, too.
    """
    return _place("rueda_rank")


def size() -> int:
    """Returns the number of processes in the job."""
    return _place("rueda_size")


def local_rank() -> int:
    """Returns this process's number among the job's processes on its node."""
    return _place("rueda_local_rank")


def local_size() -> int:
    """Returns the number of the job's processes on this node."""
    return _place("rueda_local_size")


def cross_rank() -> int:
    """Returns this node's number in the job."""
    return _place("rueda_cross_rank")


def cross_size() -> int:
    """Returns the number of nodes in the job."""
    return _place("rueda_cross_size")


def node_id() -> str:
    """Returns this node's name, as its daemon gives it."""
    _operations.require_init()
    name: bytes = _library.load().rueda_node_id()
    return name.decode()


def stats() -> Stats:
    """Returns the library's counters. Thread-safe."""
    _operations.require_init()
    raw = _library.Stats()
    check(_library.load().rueda_get_stats(byref(raw)))
    return Stats(*(getattr(raw, field) for field in Stats._fields))


class DeviceStats(NamedTuple):
    """Counters of tensors in device memory since init(), and of librueda's cache of allocations.

    Some of the fields:

    Attributes:
        buffer_checks: how often the driver was asked whether memory is still the same.
        staged_submissions: the number of tensors in memory that the GPU worker cannot open.
    """

    submissions: int
    cache_hits: int
    cache_misses: int
    recycled_addresses: int
    allocations: int
    stream_waits: int
    buffer_checks: int
    staged_submissions: int


def device_stats() -> DeviceStats:
    """Returns the counters of this process for device memory. Thread-safe."""
    _operations.require_init()
    raw = _library.DeviceStats()
    check(_library.load().rueda_get_device_stats(byref(raw)))
    return DeviceStats(*(getattr(raw, field) for field in DeviceStats._fields))


class Nonfinite(NamedTuple):
    """A NaN or an infinity that a rank contributed to a reduction.

    Some of the fields:

    Attributes:
        step: how many reductions of this name the rank had submitted, including this one.
        element: the position in the rank's flattened input, from 0.
    """

    tensor: str
    rank: int
    step: int
    element: int
    value: float
    process_set_id: int


def first_nonfinite() -> Optional[Nonfinite]:
    """Returns the NaN or infinity that came before all others, the same on all ranks. It never waits.

    The check is switched on by RUEDA_CHECK_FINITE=1 in ruedarun's environment, or by its flag --check-finite.

    Returns:
        The value, or None as long as this process has been told of none.
    """
    _operations.require_init()
    raw = _library.Nonfinite()
    if check(_library.load().rueda_first_nonfinite(byref(raw))) == 0:
        return None
    value = (float("nan"), float("inf"), float("-inf"))[raw.value]
    return Nonfinite(raw.tensor.decode("utf-8", "replace"), raw.rank, raw.step, raw.element, value, raw.process_set)


def hosts_changed() -> bool:
    """Returns whether processes wait to take part in this elastic job (ruedarun --min-np). It never waits.

    Ranks hear this at different times: they have to agree on it, as rueda.torch.elastic does at each commit, and then all call
    shutdown() and init(), which deals ranks anew.

    Raises:
        RuedaInternalError: this process's membership has ended, by this error.
    """
    _operations.require_init()
    return check(_library.load().rueda_hosts_changed()) == 1


def start_timeline(file_path: Union[str, "os.PathLike[str]"], chunks: bool = False) -> None:
    """Begins a timeline of the whole job (docs/timeline.md), which the launcher of node 0 writes. It is enough that one rank
    calls this.

    Args:
        file_path: the file. A relative path is relative to this process's working directory.
        chunks: if True, the timeline has a mark for each chunk that arrives.

    Raises:
        ValueError: a timeline is being written already. Only processes on node 0 know this.
    """
    _operations.require_init()
    path = os.path.abspath(os.fspath(file_path))
    _raise_value_error(_library.load().rueda_timeline_start(os.fsencode(path), 1 if chunks else 0))


def stop_timeline() -> None:
    """Ends the timeline; the file is complete a moment later.

    Raises:
        ValueError: there is no timeline, as far as this process knows.
    """
    _operations.require_init()
    _raise_value_error(_library.load().rueda_timeline_stop())


def _raise_value_error(code: int) -> None:
    try:
        check(code)
    except RuedaError as error:
        if error.code == INVALID_ARGUMENT:
            raise ValueError(str(error)) from None
        raise
