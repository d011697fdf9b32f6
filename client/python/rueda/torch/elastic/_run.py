"""Offers the loop around a training function that begins again."""

from __future__ import annotations

from typing import Any, Callable

from ..._elastic._run import again_and_again
from .. import _job


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a training function whose first argument is a State.

    The ranks join the job and the state is made equal on all of them first, each time. After HorovodInternalError it goes back
    to the last commit(), after HostsUpdatedInterrupt it stays; then all ranks join the job anew and the function is called
    again. In an elastic job (ruedarun --min-np) these are the ranks that live. Mistakes of the program (ranks that disagree,
    wrong arguments) are raised.

    Args:
        func: the function.

    Returns:
        The decorated function, which returns what `func` returns.

    Raises:
        RuntimeError: by the decorated function, after HOROVOD_ELASTIC_RESET_LIMIT resets, if that is set.
    """
    return again_and_again(func, _job.init)
