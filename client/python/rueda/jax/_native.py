"""Finds librueda_jax.so, and tells XLA of the handlers in it."""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from pathlib import Path
from typing import List, Optional

import jax.ffi

from .._core import _library

# What XLA calls a handler, and the function of the library.
TARGETS = {"rueda.allreduce": "rueda_jax_allreduce", "rueda.broadcast": "rueda_jax_broadcast",
           "rueda.allgather": "rueda_jax_allgather", "rueda.reduce_scatter": "rueda_jax_reduce_scatter",
           "rueda.alltoall": "rueda_jax_alltoall"}

_NAME = "librueda_jax.so"
_lock = threading.Lock()
_is_registered = False
_handlers: Optional[ctypes.CDLL] = None


def candidates() -> List[str]:
    """Returns the paths where the library is looked for, in this order: beside librueda. If $RUEDA_JAX_LIBRARY is set, it is the
    only one."""
    chosen = os.environ.get("RUEDA_JAX_LIBRARY")
    if chosen:
        return [chosen]
    return beside_librueda(_NAME)


def beside_librueda(name: str) -> List[str]:
    """Returns the paths that a library of this name has if it lies beside librueda, and its name, for the system's paths."""
    return [str(Path(path).parent / name) for path in _library.candidates() if os.path.isabs(path)] + [name]


def register() -> None:
    """Loads the library and registers its handlers, at the first call. Thread-safe.

    Raises:
        ImportError: the library was not found; the text says how to build it, and where it was looked for.
    """
    global _is_registered, _handlers
    if _is_registered:
        return
    with _lock:
        if _is_registered:
            return
        _library.load()  # the handlers call the librueda that is loaded, whatever its path
        _handlers = _load_first(candidates())
        for target, function in TARGETS.items():
            jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(getattr(_handlers, function)), platform="cpu")
        _is_registered = True


# Before the process ends JAX waits for its programs. This runs earlier (JAX has been imported before): a rank that ends by an exception
# would otherwise wait for collectives of ranks that wait for it.
def _leave() -> None:
    if _handlers is not None:
        _handlers.rueda_jax_leave_job()


atexit.register(_leave)


def _load_first(paths: List[str]) -> ctypes.CDLL:
    tried = []
    for path in paths:
        if os.path.isabs(path) and not os.path.exists(path):
            tried.append(f"{path} (no such file)")
            continue
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            tried.append(f"{path} ({error})")
    raise ImportError(f"{_NAME} was not found, which collectives in compiled programs need; build Rueda with "
                      "-DRUEDA_JAX_INCLUDE=FOLDER (docs/jax.md), or set RUEDA_JAX_LIBRARY to its path. "
                      "Looked at: " + "; ".join(tried))
