"""Loads librueda.so through ctypes: where it is, its structs and its functions (client/include/rueda/rueda.h)."""

from __future__ import annotations

import ctypes
import os
import threading
from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_char, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t,
                    c_uint32, c_uint64, c_void_p, pointer, sizeof)
from pathlib import Path
from typing import Optional

from ._errors import error_for

_SONAME = "librueda.so.0"
_PACKAGE = Path(__file__).resolve().parents[1]


class InitOptions(Structure):
    _fields_ = [("struct_bytes", c_size_t), ("socket", c_char_p), ("job_id", c_char_p),
                ("job_token", c_char_p), ("rank", c_int32), ("local_rank", c_int32),
                ("timeout_ms", c_int64)]


class Tensor(Structure):
    _fields_ = [("name", c_char_p), ("input", c_void_p), ("output", c_void_p),
                ("shape", POINTER(c_int64)), ("ndim", c_int32), ("dtype", c_int),
                ("process_set", c_uint32)]


class ReduceOptions(Structure):
    _fields_ = [("struct_bytes", c_size_t), ("op", c_int), ("prescale", c_double),
                ("postscale", c_double), ("priority", c_int32), ("wire_dtype", c_int)]


class PlannedTensor(Structure):
    _fields_ = [("tensor", Tensor), ("options", POINTER(ReduceOptions)), ("group_name", c_char_p),
                ("after", POINTER(c_uint32)), ("after_count", c_size_t), ("is_on_device", c_int32)]


class Stats(Structure):
    _fields_ = [("submissions", c_uint64), ("completions", c_uint64), ("bytes_copied_in", c_uint64),
                ("bytes_copied_out", c_uint64), ("arena_bytes", c_uint64)]


class DeviceStats(Structure):
    _fields_ = [("submissions", c_uint64), ("cache_hits", c_uint64), ("cache_misses", c_uint64),
                ("recycled_addresses", c_uint64), ("allocations", c_uint64), ("stream_waits", c_uint64),
                ("buffer_checks", c_uint64), ("staged_submissions", c_uint64)]


class Nonfinite(Structure):
    _fields_ = [("tensor", c_char * 256), ("rank", c_int32), ("process_set", c_uint32), ("step", c_uint64),
                ("element", c_uint64), ("value", c_int32)]


class Result(Structure):
    _fields_ = [("epoch", c_uint32), ("contributors", c_uint32), ("seq", c_uint64), ("value", c_uint32)]


# rueda_callback: a handle, its code, its result and the argument of rueda_then.
Callback = CFUNCTYPE(None, c_uint64, c_int, POINTER(Result), c_void_p)

_SIGNATURES = {
    "rueda_init": (c_int, [POINTER(InitOptions)]),
    "rueda_shutdown": (c_int, []),
    "rueda_is_initialized": (c_int, []),
    "rueda_rank": (c_int, []),
    "rueda_size": (c_int, []),
    "rueda_local_rank": (c_int, []),
    "rueda_local_size": (c_int, []),
    "rueda_cross_rank": (c_int, []),
    "rueda_cross_size": (c_int, []),
    "rueda_node_id": (c_char_p, []),
    "rueda_version": (c_char_p, []),
    "rueda_alloc": (c_void_p, [c_size_t]),
    "rueda_free": (c_int, [c_void_p]),
    "rueda_dlpack": (c_void_p, [c_void_p, c_size_t]),
    "rueda_dlpack_count": (c_int, [c_void_p]),
    "rueda_allreduce_async": (c_int, [POINTER(Tensor), POINTER(ReduceOptions), POINTER(c_uint64)]),
    "rueda_grouped_allreduce_async": (c_int, [c_char_p, POINTER(Tensor), c_size_t,
                                              POINTER(ReduceOptions), POINTER(c_uint64)]),
    "rueda_broadcast_async": (c_int, [POINTER(Tensor), c_int, POINTER(c_uint64)]),
    "rueda_reduce_async": (c_int, [POINTER(Tensor), c_int, POINTER(ReduceOptions), POINTER(c_uint64)]),
    "rueda_allgather_async": (c_int, [POINTER(Tensor), POINTER(c_int64), POINTER(c_uint64)]),
    "rueda_gather_async": (c_int, [POINTER(Tensor), POINTER(c_int64), c_int, POINTER(c_uint64)]),
    "rueda_reduce_scatter_async": (c_int, [POINTER(Tensor), POINTER(c_int64), POINTER(ReduceOptions),
                                           POINTER(c_uint64)]),
    "rueda_scatter_async": (c_int, [POINTER(Tensor), POINTER(c_int64), c_int, POINTER(c_uint64)]),
    "rueda_alltoall_async": (c_int, [POINTER(Tensor), POINTER(c_int64), POINTER(c_uint64)]),
    "rueda_device_allreduce_async": (c_int, [POINTER(Tensor), POINTER(ReduceOptions), c_void_p, POINTER(c_uint64)]),
    "rueda_device_grouped_allreduce_async": (c_int, [c_char_p, POINTER(Tensor), c_size_t, POINTER(ReduceOptions),
                                                     c_void_p, POINTER(c_uint64)]),
    "rueda_device_broadcast_async": (c_int, [POINTER(Tensor), c_int, c_void_p, POINTER(c_uint64)]),
    "rueda_device_watch_frees": (c_int, [c_char_p]),
    "rueda_device_wait": (c_int, [c_uint64, c_void_p]),
    "rueda_get_device_stats": (c_int, [POINTER(DeviceStats)]),
    "rueda_send_async": (c_int, [c_void_p, c_int64, c_int, c_int, c_int64, c_uint32, POINTER(c_uint64)]),
    "rueda_cancel": (c_int, [c_uint64]),
    "rueda_recv_async": (c_int, [c_void_p, c_int64, c_int, c_int, c_int64, c_uint32, POINTER(c_uint64)]),
    "rueda_process_set_barrier_async": (c_int, [c_uint32, c_char_p, POINTER(c_uint64)]),
    "rueda_join_async": (c_int, [POINTER(c_uint64)]),
    "rueda_process_set_add": (c_int, [POINTER(c_int32), c_int32, POINTER(c_uint32)]),
    "rueda_process_set_remove": (c_int, [c_uint32]),
    "rueda_process_set_size": (c_int, [c_uint32]),
    "rueda_process_set_rank": (c_int, [c_uint32, POINTER(c_int32)]),
    "rueda_plan_declare": (c_int, [POINTER(PlannedTensor), c_size_t]),
    "rueda_timeline_start": (c_int, [c_char_p, c_uint32]),
    "rueda_timeline_stop": (c_int, []),
    "rueda_wait": (c_int, [c_uint64, c_int64, POINTER(Result)]),
    "rueda_wait_any": (c_int, [POINTER(c_uint64), c_size_t, c_int64, POINTER(c_size_t)]),
    "rueda_test": (c_int, [c_uint64, POINTER(c_int)]),
    "rueda_then": (c_int, [c_uint64, Callback, c_void_p]),
    "rueda_then_take_back": (c_int, [Callback]),
    "rueda_hosts_changed": (c_int, []),
    "rueda_first_nonfinite": (c_int, [POINTER(Nonfinite)]),
    "rueda_last_error": (c_char_p, []),
    "rueda_error_name": (c_char_p, [c_int]),
    "rueda_get_stats": (c_int, [POINTER(Stats)]),
}

_library: Optional[ctypes.CDLL] = None
_lock = threading.Lock()


def candidates() -> list[str]:
    """Returns the paths where librueda is looked for, in this order. If $RUEDA_LIBRARY is set, it is the only one."""
    chosen = os.environ.get("RUEDA_LIBRARY")
    if chosen:
        return [chosen]
    found = [str(_PACKAGE / "lib" / "librueda.so")]
    checkout = _PACKAGE.parents[2] if len(_PACKAGE.parents) > 2 else _PACKAGE
    if (checkout / "client" / "include" / "rueda" / "rueda.h").exists():
        builds = sorted((checkout / "build").glob("*/lib/librueda.so"),
                        key=lambda path: (path.parents[1].name != "release", str(path)))
        found += [str(path) for path in builds]
    return found + [_SONAME]


def load() -> ctypes.CDLL:
    """Returns the library, which is loaded at the first call.

    Raises:
        ImportError: the library was not found; the text lists where it was looked for.
    """
    global _library
    if _library is not None:
        return _library
    with _lock:
        if _library is None:
            _library = _load_first(candidates())
    return _library


def loaded() -> Optional[ctypes.CDLL]:
    return _library


def _load_first(paths: list[str]) -> ctypes.CDLL:
    tried = []
    for path in paths:
        if os.path.isabs(path) and not os.path.exists(path):
            tried.append(f"{path} (no such file)")
            continue
        try:
            library = ctypes.CDLL(path)
            for name, (result, arguments) in _SIGNATURES.items():
                function = getattr(library, name)
                function.restype = result
                function.argtypes = arguments
            return library
        except (OSError, AttributeError) as error:
            tried.append(f"{path} ({error})")
    raise ImportError("librueda.so was not found; install librueda, or set RUEDA_LIBRARY to its path. "
                      "Looked at: " + "; ".join(tried))


def last_error() -> str:
    return (load().rueda_last_error() or b"").decode("utf-8", "replace")


def error_name(code: int) -> str:
    """Returns the name of a code, such as RUEDA_ERR_MISMATCH for -2."""
    return (load().rueda_error_name(code) or b"").decode()


def check(code: int) -> int:
    """Returns a code that is not negative.

    Raises:
        RuedaError: the code is negative.
    """
    if code < 0:
        raise error_for(code, last_error())
    return code


__all__ = ["Callback", "DeviceStats", "InitOptions", "Nonfinite", "PlannedTensor", "ReduceOptions", "Result", "Stats", "Tensor", "byref",
           "candidates", "check", "error_name", "last_error", "load", "loaded", "pointer", "sizeof"]
