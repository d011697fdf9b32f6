"""Joins the job, and tells what Horovod's users ask about it and the build."""

from __future__ import annotations

from typing import Any, Optional, Sequence, Union

from .._core._process_sets import ProcessSet
from .._torch_common import _device
from ..common.job import (ccl_built, ddl_built, gloo_built, gloo_enabled, is_homogeneous, join_job, mpi_built, mpi_enabled,
                          mpi_threads_supported, nccl_built, rocm_built, shutdown, start_timeline, stop_timeline)
from . import _known_groups, _known_tensors, _names


def _prepare() -> None:
    _device.watch_frees()
    _names.reset()
    _known_groups.reset()
    _known_tensors.reset()


def init(comm: Optional[Any] = None, process_sets: Union[None, str, Sequence[ProcessSet]] = None) -> None:
    """Attaches to the node's daemon and waits until every rank of the job has done so. A second call does nothing. After
    shutdown() it may be called again.

    Args:
        comm: None, or a list of all ranks. A part of the job is a process set here.
        process_sets: process sets to be added, the same on all ranks. "dynamic" is allowed and changes nothing.

    Raises:
        RuedaError: the process could not attach; the text says what is missing.
        ValueError: an argument is wrong.
    """
    join_job(comm, process_sets, _prepare)


def cuda_built() -> bool:
    """Returns True: tensors may be in a GPU's memory, where the node's daemon has the plugin for it (docs/gpu.md)."""
    return True


__all__ = ["ccl_built", "cuda_built", "ddl_built", "gloo_built", "gloo_enabled", "init", "is_homogeneous", "mpi_built", "mpi_enabled",
           "mpi_threads_supported", "nccl_built", "rocm_built", "shutdown", "start_timeline", "stop_timeline"]
