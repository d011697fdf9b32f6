"""Joining and leaving the job, and the place in it."""

from __future__ import annotations

import os
from typing import NamedTuple, Optional, Sequence, Union

from . import _library, _operations, _process_sets, _stream_pending
from ._errors import INVALID_ARGUMENT, RuedaError
from ._library import InitOptions, byref, check


_sessions = 0


_SHUTDOWN_S = 5.0  # as long as librueda waits


class Stats(NamedTuple):
    """Counters since init(). bytes_copied_*: memory not from rueda.empty, copied into the arena and
    back."""

    submissions: int
    completions: int
    bytes_copied_in: int
    bytes_copied_out: int
    arena_bytes: int


def init(process_sets: Optional[Sequence[_process_sets.Ranks]] = None, *,
         socket: Optional[str] = None, timeout: Optional[float] = None) -> None:
    """Attaches to the node's daemon and waits until every rank of the job has done so.

    process_sets: sets (or lists of ranks) to be added, the same on all ranks; without it those of
    $RUEDA_PROCESS_SETS ("0,1;2,3"). ruedarun sets what is needed in the environment. socket: the daemon's socket, instead of
    $RUEDA_SOCKET. timeout: seconds for all ranks to arrive, instead of $RUEDA_START_TIMEOUT_MS,
    else 60. A second call does nothing. Raises RuedaError (the text says how to start a daemon, or
    which variable is missing) and ImportError without librueda. Not to be called beside another
    function.
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
    """Waits for what is in flight (5 s at most), says goodbye and frees everything but
    rueda.empty's arrays, which stay readable. init() may follow. Does nothing before init(). Raises
    RuedaTimeoutError if operations were left in flight, RuedaError if one that a stream waits for has
    failed. Not to be called beside another function."""
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
    """Another number after each init() and shutdown(): memory and ids of an earlier session are not
    this one's."""
    return _sessions


def is_initialized() -> bool:
    """True between init() and shutdown(). False in a forked child."""
    library = _library.loaded()
    return library is not None and library.rueda_is_initialized() == 1


def _place(function: str) -> int:
    _operations.require_init()
    return check(getattr(_library.load(), function)())


def rank() -> int:
    """This process's number in the job, 0 to size() - 1. ValueError before init(), as for all
    below."""
    return _place("rueda_rank")


def size() -> int:
    """How many processes the job has."""
    return _place("rueda_size")


def local_rank() -> int:
    """This process's number on its node."""
    return _place("rueda_local_rank")


def local_size() -> int:
    """How many processes of the job run on this node."""
    return _place("rueda_local_size")


def cross_rank() -> int:
    """This node's number in the job."""
    return _place("rueda_cross_rank")


def cross_size() -> int:
    """How many nodes the job has."""
    return _place("rueda_cross_size")


def node_id() -> str:
    """This node's name, as its daemon gives it."""
    _operations.require_init()
    name: bytes = _library.load().rueda_node_id()
    return name.decode()


def stats() -> Stats:
    """The library's counters. Thread-safe."""
    _operations.require_init()
    raw = _library.Stats()
    check(_library.load().rueda_get_stats(byref(raw)))
    return Stats(*(getattr(raw, field) for field in Stats._fields))


class DeviceStats(NamedTuple):
    """Counters of tensors in device memory since init(), and of librueda's cache of allocations. buffer_checks: how
    often the driver was asked whether memory is still the same. staged_submissions: tensors in memory that the GPU
    worker cannot open."""

    submissions: int
    cache_hits: int
    cache_misses: int
    recycled_addresses: int
    allocations: int
    stream_waits: int
    buffer_checks: int
    staged_submissions: int


def device_stats() -> DeviceStats:
    """Those of this process. Thread-safe."""
    _operations.require_init()
    raw = _library.DeviceStats()
    check(_library.load().rueda_get_device_stats(byref(raw)))
    return DeviceStats(*(getattr(raw, field) for field in DeviceStats._fields))


class Nonfinite(NamedTuple):
    """A NaN or an infinity that a rank contributed to a reduction. step: how often the rank had submitted a
    reduction of this name, from 1. element: of the rank's input, flat, from 0."""

    tensor: str
    rank: int
    step: int
    element: int
    value: float
    process_set_id: int


def first_nonfinite() -> Optional[Nonfinite]:
    """With RUEDA_CHECK_FINITE=1 in ruedarun's environment, or its --check-finite: the NaN or infinity that came before
    all others, the same on all ranks. None as long as this process has been told of none. Never waits."""
    _operations.require_init()
    raw = _library.Nonfinite()
    if check(_library.load().rueda_first_nonfinite(byref(raw))) == 0:
        return None
    value = (float("nan"), float("inf"), float("-inf"))[raw.value]
    return Nonfinite(raw.tensor.decode("utf-8", "replace"), raw.rank, raw.step, raw.element, value, raw.process_set)


def start_timeline(file_path: Union[str, "os.PathLike[str]"], chunks: bool = False) -> None:
    """Begins a timeline of the whole job (docs/timeline.md). The launcher of node 0 writes the file; a
    relative path is this process's. One rank is enough. With `chunks`, a mark for each chunk that comes.
    ValueError if one is being written already, where this is known: on node 0."""
    _operations.require_init()
    path = os.path.abspath(os.fspath(file_path))
    _raise_value_error(_library.load().rueda_timeline_start(os.fsencode(path), 1 if chunks else 0))


def stop_timeline() -> None:
    """Ends it; the file is whole a moment later. ValueError if there is none, where this is known."""
    _operations.require_init()
    _raise_value_error(_library.load().rueda_timeline_stop())


def _raise_value_error(code: int) -> None:
    try:
        check(code)
    except RuedaError as error:
        if error.code == INVALID_ARGUMENT:
            raise ValueError(str(error)) from None
        raise
