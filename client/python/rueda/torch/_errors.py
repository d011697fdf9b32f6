"""The exceptions that Horovod's users catch."""

from __future__ import annotations

from typing import Any

from .. import _left, _operations
from .._errors import DUPLICATE_NAME, INTERNAL, INVALID_ARGUMENT, RuedaError, RuedaInternalError


class HorovodInternalError(RuedaInternalError):
    """An operation failed. `code` is one of rueda.h's RUEDA_ERR_*; codes of a membership that is lost
    are those that rueda.RuedaInternalError has by itself."""

    def __init__(self, message: str = "", code: int = INTERNAL) -> None:
        super().__init__(code, message)

    def __reduce__(self) -> "tuple[type, tuple[str, int]]":  # type: ignore[override]
        return type(self), (str(self), self.code)


class HorovodArgumentError(HorovodInternalError, ValueError):
    """What the daemon or librueda would refuse in the call itself. Horovod raises ValueError there."""


class HostsUpdatedInterrupt(RuntimeError):
    """The job's hosts have changed: training begins again from the state as it is. skip_sync: hosts
    were only removed, so all ranks have the same state already."""

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("the job's hosts have changed")
        self.skip_sync = skip_sync


def horovod_error(error: RuedaError) -> HorovodInternalError:
    return HorovodInternalError(str(error), error.code)


def submission_error(code: int, message: str) -> HorovodInternalError:
    """Of a submission that was refused."""
    kind = HorovodArgumentError if code in (INVALID_ARGUMENT, DUPLICATE_NAME) else HorovodInternalError
    return kind(message, code)


def settle_left() -> None:
    """What streams were left to wait for and has failed by now, as Horovod's error."""
    try:
        _left.settle()
    except RuedaError as error:
        raise horovod_error(error) from None


def finish_left() -> None:
    """Waits for all that streams were left to wait for."""
    try:
        _left.finish()
    except RuedaError as error:
        raise horovod_error(error) from None


def synchronize(handle: int) -> Any:
    """rueda.synchronize with Horovod's error."""
    try:
        return _operations.synchronize(handle)
    except RuedaError as error:
        raise horovod_error(error) from None
