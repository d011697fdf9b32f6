"""Defines the exceptions, and turns librueda's codes into them."""

from __future__ import annotations

INVALID_ARGUMENT = -1
MISMATCH = -2
DUPLICATE_NAME = -3
TIMEOUT = -4
RANK_LOST = -5
NODE_LOST = -6
DAEMON_LOST = -7
SHUT_DOWN = -8
RESOURCE_EXHAUSTED = -12
UNAVAILABLE = -13
INTERNAL = -14


class RuedaError(RuntimeError):
    """An operation failed. `code` is one of rueda.h's RUEDA_ERR_*, and the text says who is to blame."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[type, tuple[int, str]]:
        return type(self), (self.code, str(self))


class RuedaTimeoutError(RuedaError, TimeoutError):
    """The time was up before the operation ended. The operation goes on, and its handle stays valid."""


# In an elastic job, init() fails by these when a part of the job has died meanwhile, and the job goes on without it.
FORMS_AGAIN = (RANK_LOST, NODE_LOST, DAEMON_LOST, UNAVAILABLE, TIMEOUT)


class RuedaInternalError(RuedaError):
    """A rank, a node or the daemon is lost, or the job has been shut down: nothing more can be reduced in this membership.
    Elastic training catches this exception; Horovod calls it HorovodInternalError."""


HorovodInternalError = RuedaInternalError


def error_for(code: int, message: str) -> RuedaError:
    if code == TIMEOUT:
        return RuedaTimeoutError(code, message)
    if code in (RANK_LOST, NODE_LOST, DAEMON_LOST, SHUT_DOWN):
        return RuedaInternalError(code, message)
    return RuedaError(code, message)
