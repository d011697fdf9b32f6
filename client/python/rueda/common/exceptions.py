"""Defines the exceptions that Horovod's users catch."""

from __future__ import annotations

from .._core._errors import DUPLICATE_NAME, INTERNAL, INVALID_ARGUMENT, RuedaError, RuedaInternalError


class HorovodInternalError(RuedaInternalError):
    """An operation failed. `code` is one of rueda.h's RUEDA_ERR_*; the codes of a lost membership are those for which rueda
    raises RuedaInternalError."""

    def __init__(self, message: str = "", code: int = INTERNAL) -> None:
        super().__init__(code, message)

    def __reduce__(self) -> "tuple[type, tuple[str, int]]":  # type: ignore[override]
        return type(self), (str(self), self.code)


class HorovodArgumentError(HorovodInternalError, ValueError):
    """The daemon or librueda would refuse the call itself. Horovod raises ValueError for it."""


class HostsUpdatedInterrupt(RuntimeError):
    """The job's hosts have changed: training begins again from the state as it is.

    Attributes:
        skip_sync: what a program that raises it says, which makes no difference: ranks that are new would wait for those that skip.
    """

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("the job's hosts have changed")
        self.skip_sync = skip_sync


def submission_error(code: int, message: str) -> HorovodInternalError:
    """Returns the error of a submission that was refused."""
    kind = HorovodArgumentError if code in (INVALID_ARGUMENT, DUPLICATE_NAME) else HorovodInternalError
    return kind(message, code)


def horovod_error(error: RuedaError) -> HorovodInternalError:
    return HorovodInternalError(str(error), error.code)


__all__ = ["HorovodArgumentError", "HorovodInternalError", "HostsUpdatedInterrupt", "horovod_error", "submission_error"]
