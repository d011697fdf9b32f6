"""Joins the job."""

from __future__ import annotations

from typing import Any, Optional, Sequence, Union

from .._core._process_sets import ProcessSet
from ..common.job import join_job
from . import _native


def init(comm: Optional[Any] = None, process_sets: Union[None, str, Sequence[ProcessSet]] = None) -> None:
    """Attaches to the node's daemon and waits until every rank of the job has done so. A second call does nothing. After
    shutdown() it may be called again.

    Args:
        comm: None, or a list of all ranks. A part of the job is a process set here.
        process_sets: process sets to be added, the same on all ranks. "dynamic" is allowed and changes nothing.

    Raises:
        RuedaError: the process could not attach; the text says what is missing.
        ImportError: librueda or the library of ops was not found, or TensorFlow does not take it.
        ValueError: an argument is wrong.
    """
    _native.ops()
    join_job(comm, process_sets, lambda: None)


def cuda_built() -> bool:
    """Returns False: ops of tensors run on the CPU, and TensorFlow copies what is in a GPU's memory."""
    return False
