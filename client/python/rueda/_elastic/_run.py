"""Implements the loop around a training function that begins again."""

from __future__ import annotations

import functools
import logging
import os
from typing import Any, Callable, Optional

from .._core import _context
from .._core._errors import DUPLICATE_NAME, FORMS_AGAIN, INVALID_ARGUMENT, MISMATCH, RuedaError, RuedaInternalError
from ..common import job
from ..common.exceptions import HostsUpdatedInterrupt
from ._state import State

# These errors are mistakes of the program, which would make them again.
_MISTAKES = (INVALID_ARGUMENT, MISMATCH, DUPLICATE_NAME)
_log = logging.getLogger("rueda")


def _reset_limit() -> int:
    return int(os.environ.get("HOROVOD_ELASTIC_RESET_LIMIT") or 0)


def _leave() -> None:
    try:
        job.shutdown()
    except RuedaError:
        pass  # a membership that is lost needs no orderly end


def _may_form_again(error: RuedaError) -> bool:
    """Returns whether the error of an init() is that a part of the job has died meanwhile, and the job goes on without it."""
    return "RUEDA_ELASTIC" in os.environ and error.code in FORMS_AGAIN


def _recover(state: State, error: RuedaError) -> None:
    """Goes back to the last commit if the job may go on, and otherwise raises the error."""
    if not _context.is_initialized():
        if not _may_form_again(error):
            raise error
        _log.warning("the job forms once more: %s", error)
    elif isinstance(error, RuedaInternalError) and error.code not in _MISTAKES:
        _log.warning("training begins again from the last commit: %s", error)
        state.restore()
    else:
        raise error


def again_and_again(func: Callable[..., Any], init: Callable[[], None],
                    translate: Callable[[Exception], Optional[RuedaError]] = lambda error: None) -> Callable[..., Any]:
    """Returns what run() of a front end's elastic module returns.

    Args:
        func: the training function, whose first argument is a State.
        init: joins the job, or does nothing if the process has joined it.
        translate: returns the error of librueda's that an exception of the framework tells of, or None if it is another one.
    """
    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        resets = 0
        while True:
            try:
                init()
                state.previous_size, state.current_size = state.current_size, _context.size()
                if resets:
                    state.on_reset()
                state.sync()
                return func(state, *args, **kwargs)
            except HostsUpdatedInterrupt:
                pass  # the state stays as it is
            except RuedaError as error:
                _recover(state, error)
            except Exception as error:
                told = translate(error)
                if told is None:
                    raise
                _recover(state, told)
            resets += 1
            if 0 < _reset_limit() < resets:
                raise RuntimeError(f"training began again {resets - 1} times, as often as HOROVOD_ELASTIC_RESET_LIMIT "
                                   "allows")
            _leave()

    return wrapper


__all__ = ["again_and_again"]
