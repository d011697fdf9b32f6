"""Turns librueda's errors into Horovod's."""

from __future__ import annotations

from typing import Any

from .._core import _operations, _stream_pending
from .._core._errors import RuedaError
from ..common.exceptions import (HorovodArgumentError, HorovodInternalError, HostsUpdatedInterrupt, horovod_error,
                                 submission_error)

__all__ = ["HorovodArgumentError", "HorovodInternalError", "HostsUpdatedInterrupt", "finish_left", "horovod_error", "settle_left",
           "submission_error", "synchronize"]


def settle_left() -> None:
    """Raises Horovod's error if an operation that a stream was left to wait for has failed by now."""
    try:
        _stream_pending.settle()
    except RuedaError as error:
        raise horovod_error(error) from None


def finish_left() -> None:
    """Waits for all operations that streams were left to wait for."""
    try:
        _stream_pending.finish()
    except RuedaError as error:
        raise horovod_error(error) from None


def synchronize(handle: int) -> Any:
    """Does what rueda.synchronize() does, with Horovod's error."""
    try:
        return _operations.synchronize(handle)
    except RuedaError as error:
        raise horovod_error(error) from None
