"""Does what Horovod's front ends have in common: joins and leaves the job, and answers what users ask about it and the build."""

from __future__ import annotations

import warnings
from typing import Any, Callable, Optional, Sequence, Union

import numpy as np

from .._core import _context, _operations
from .._core._errors import RuedaTimeoutError
from .._core._operations import require_init
from .._core._process_sets import ProcessSet, Ranks

_has_equal_nodes = True


def join_job(comm: Optional[Any], process_sets: Union[None, str, Sequence[ProcessSet]], prepare: Callable[[], None]) -> None:
    """Does what the init() of a front end does. `prepare` is called when the process is attached.

    Args:
        comm: None, or a list of all ranks. A part of the job is a process set here.
        process_sets: process sets to be added, the same on all ranks. "dynamic" is allowed and changes nothing.

    Raises:
        RuedaError: the process could not attach; the text says what is missing.
        ValueError: an argument is wrong.
    """
    global _has_equal_nodes
    if _context.is_initialized():
        return
    sets: Optional[Sequence[Ranks]] = None if isinstance(process_sets, str) else process_sets
    if isinstance(process_sets, str) and process_sets.lower() != "dynamic":
        raise ValueError(f"process_sets={process_sets!r} is unknown; give a list of ProcessSet, or \"dynamic\"")
    if comm is not None and not isinstance(comm, (list, tuple, range)):
        raise ValueError("comm is an MPI communicator, which Rueda does not use; start the ranks with ruedarun, and "
                         "use process sets for parts of the job")
    _context.init(sets)
    prepare()
    if comm is not None and sorted(comm) != list(range(_context.size())):
        ranks = sorted(comm)
        _context.shutdown()
        raise ValueError(f"comm={ranks} is only a part of the job; use process sets")
    _has_equal_nodes = _are_nodes_equal()


def _are_nodes_equal() -> bool:
    count = _context.local_size()
    least_and_most = _operations.allreduce(np.array([count, -count], np.int64), op=_operations.Min,
                                           name="rueda.local_sizes")
    return bool(least_and_most[0] == -least_and_most[1])


def shutdown() -> None:
    """Waits for operations in flight (5 s at most) and leaves the job. A warning names operations that are left then. init() may
    follow, once all ranks have left."""
    try:
        _context.shutdown()
    except RuedaTimeoutError as error:
        warnings.warn(str(error), stacklevel=2)


def is_homogeneous() -> bool:
    """Returns whether every node has as many ranks as the others."""
    require_init()
    return _has_equal_nodes


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Begins a timeline of the whole job (docs/timeline.md), which the launcher of node 0 writes. It is enough that one rank
    calls this.

    Args:
        file_path: the file.
        mark_cycles: not used, because there are no cycles.

    Raises:
        ValueError: init() has not been called or, on node 0, a timeline is being written already.
    """
    _context.start_timeline(file_path)


def stop_timeline() -> None:
    """Ends the timeline; the file is complete a moment later.

    Raises:
        ValueError: init() has not been called or, on node 0, there is no timeline.
    """
    _context.stop_timeline()


def mpi_threads_supported() -> bool:
    """Returns False: there is no MPI."""
    require_init()
    return False


def mpi_enabled() -> bool:
    """Returns False: there is no MPI."""
    return False


def mpi_built() -> bool:
    """Returns False: there is no MPI."""
    return False


def gloo_enabled() -> bool:
    """Returns False: daemons carry the tensors, not Gloo."""
    return False


def gloo_built() -> bool:
    """Returns False: daemons carry the tensors, not Gloo."""
    return False


def nccl_built() -> bool:
    """Returns False: a GPU worker reduces tensors in a GPU's memory, not NCCL."""
    return False


def ddl_built() -> bool:
    """Returns False: there is no DDL."""
    return False


def ccl_built() -> bool:
    """Returns False: there is no oneCCL."""
    return False


def rocm_built() -> bool:
    """Returns False: only GPUs with CUDA are supported."""
    return False


__all__ = ["ccl_built", "ddl_built", "gloo_built", "gloo_enabled", "is_homogeneous", "join_job", "mpi_built",
           "mpi_enabled", "mpi_threads_supported", "nccl_built", "rocm_built", "shutdown", "start_timeline", "stop_timeline"]
