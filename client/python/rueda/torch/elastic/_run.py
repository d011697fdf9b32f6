"""Implements the loop around a training function that begins again."""

from __future__ import annotations

import functools
import logging
import os
from typing import Any, Callable

from ..._core import _context
from ..._core._errors import DUPLICATE_NAME, FORMS_AGAIN, INVALID_ARGUMENT, MISMATCH, RuedaError, RuedaInternalError
from .. import _job
from .._errors import HostsUpdatedInterrupt
from ._state import State

# These errors are mistakes of the program, which would make them again.
_MISTAKES = (INVALID_ARGUMENT, MISMATCH, DUPLICATE_NAME)
_log = logging.getLogger("rueda")


def _reset_limit() -> int:
    return int(os.environ.get("HOROVOD_ELASTIC_RESET_LIMIT") or 0)


def _leave() -> None:
    try:
        _job.shutdown()
    except RuedaError:
        pass  # a membership that is lost needs no orderly end


def _may_form_again(error: RuedaError) -> bool:
    """Returns whether the error of an init() is that a part of the job has died meanwhile, and the job goes on without it."""
    return "RUEDA_ELASTIC" in os.environ and error.code in FORMS_AGAIN


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
    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        resets = 0
        while True:
            try:
                _job.init()
                state.previous_size, state.current_size = state.current_size, _context.size()
                if resets:
                    state.on_reset()
                state.sync()
                return func(state, *args, **kwargs)
            except HostsUpdatedInterrupt:
                pass  # the state stays as it is
            except RuedaError as error:
                if not _context.is_initialized():
                    if not _may_form_again(error):
                        raise
                    _log.warning("the job forms once more: %s", error)
                elif isinstance(error, RuedaInternalError) and error.code not in _MISTAKES:
                    _log.warning("training begins again from the last commit: %s", error)
                    state.restore()
                else:
                    raise
            resets += 1
            if 0 < _reset_limit() < resets:
                raise RuntimeError(f"training began again {resets - 1} times, as often as HOROVOD_ELASTIC_RESET_LIMIT "
                                   "allows")
            _leave()

    return wrapper
