"""Implements the loop around a training function that begins again."""

from __future__ import annotations

import functools
import logging
import os
from typing import Any, Callable

from ..._core._errors import DUPLICATE_NAME, INVALID_ARGUMENT, MISMATCH, RuedaError, RuedaInternalError
from .. import _job
from .._errors import HostsUpdatedInterrupt
from ._state import State

# These errors are mistakes of the program, which would make them again.
_MISTAKES = (INVALID_ARGUMENT, MISMATCH, DUPLICATE_NAME)
_log = logging.getLogger("rueda")


def _reset_limit() -> int:
    return int(os.environ.get("HOROVOD_ELASTIC_RESET_LIMIT") or 0)


def _join_again() -> None:
    try:
        _job.shutdown()
    except RuedaError:
        pass  # a membership that is lost needs no orderly end
    _job.init()


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a training function whose first argument is a State.

    The state is made equal on all ranks first, each time. After HorovodInternalError it goes back to the last commit(), after
    HostsUpdatedInterrupt it stays; then all ranks join the job anew and the function is called again. Mistakes of the program
    (ranks that disagree, wrong arguments) are raised.

    Args:
        func: the function.

    Returns:
        The decorated function, which returns what `func` returns.

    Raises:
        RuntimeError: by the decorated function, after HOROVOD_ELASTIC_RESET_LIMIT resets, if that is set.
    """
    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        _job.init()
        resets = 0
        while True:
            try:
                state.sync()
                return func(state, *args, **kwargs)
            except RuedaInternalError as error:
                if error.code in _MISTAKES:
                    raise
                _log.warning("training begins again from the last commit: %s", error)
                state.restore()
            except HostsUpdatedInterrupt:
                pass  # the state stays as it is
            resets += 1
            if 0 < _reset_limit() < resets:
                raise RuntimeError(f"training began again {resets - 1} times, as often as HOROVOD_ELASTIC_RESET_LIMIT "
                                   "allows")
            _join_again()
            state.on_reset()

    return wrapper
