"""Carries out one collective: an operation of librueda's, from its submission to the tensors that the caller sees."""

from __future__ import annotations

import math
import threading
import time
from typing import Any, Callable, List, Optional, Protocol

import torch

from .._core import _library
from .._core._errors import MISMATCH, TIMEOUT, error_for

# A waiting thread wakes this often, for signal handlers (Ctrl-C).
_SIGNAL_SLICE_S = 0.5


class Waitable(Protocol):
    """An Operation, or something that can be waited for like one."""

    what: str

    @property
    def result(self) -> List[torch.Tensor]: ...

    @property
    def error(self) -> Optional[BaseException]: ...

    @property
    def has_ended(self) -> bool: ...

    def poll(self) -> bool: ...

    def wait(self, timeout: Optional[float]) -> bool: ...


class Operation:
    """An operation. Any thread may wait for it, and several may at a time. The thread that sees its end first finishes it.

    Args:
        what: the collective's name, for error messages.
        start: submits the operation and returns librueda's handle; begin() calls it once.
        finish: makes the result when the daemon is done; it is called once.
        memory: what must live until then.
    """

    def __init__(self, what: str, start: Callable[[], int], finish: Callable[[], List[torch.Tensor]],
                 memory: Any) -> None:
        self.what = what
        self.result: List[torch.Tensor] = []
        self.error: Optional[BaseException] = None
        self.hint = ""  # a text that is added to librueda's if ranks do not make the same call
        self.on_error: Optional[Callable[[BaseException], None]] = None  # is called before anybody sees the error
        self.number = 0  # the number that its group has given the call
        self._behind: List[Waitable] = []  # what must have ended before it begins
        self._beginning = threading.Lock()  # is held by the thread that begins what has had to wait
        self._start: Optional[Callable[[], int]] = start
        self._finish: Optional[Callable[[], List[torch.Tensor]]] = finish
        self._memory = memory
        self._handle = 0
        self._waiting = threading.Lock()  # is held by the thread that is in librueda's wait
        self._has_ended = threading.Event()

    def begin(self) -> None:
        """Submits the operation. If the daemon refuses it, it has ended with an error."""
        assert self._start is not None
        start, self._start = self._start, None
        try:
            self._handle = start()
        except Exception as error:
            self._end(error)

    def begin_behind(self, others: "List[Waitable]") -> bool:
        """Begins the operation if all these have ended, and returns whether they have; otherwise whoever waits for the operation
        waits for them first. May be called again, by any thread. If one of them has failed, the operation has ended with its
        error, without having been submitted."""
        with self._beginning:
            if self._start is None:
                return True
            self._behind = others
            if not all([other.poll() for other in others]):
                return False
            error = next((other.error for other in others if other.error is not None), None)
            if error is None:
                self.begin()
            else:
                self._start = self.on_error = None  # whoever failed has called it
                self._end(error)
            self._behind = []
            return True

    @property
    def has_ended(self) -> bool:
        """Returns whether the result or the error is there."""
        return self._has_ended.is_set()

    def poll(self) -> bool:
        """Checks whether the operation has ended, without waiting."""
        return self.wait(0.0)

    def wait(self, timeout: Optional[float]) -> bool:
        """Waits until the operation has ended, `timeout` seconds at most; None means for ever. Returns False if it has not ended.
        An operation that another thread is to begin is waited for as well."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while not self.has_ended:
            left = max(0.0, min(deadline - time.monotonic(), _SIGNAL_SLICE_S))
            if self._handle == 0:
                self._wait_to_begin(left)
            elif self._waiting.acquire(timeout=left):
                try:
                    self._wait_here(left)
                finally:
                    self._waiting.release()
            if not self.has_ended and time.monotonic() >= deadline:
                return False
        return True

    def _wait_to_begin(self, seconds: float) -> None:
        behind = self._behind
        if not behind:
            self._has_ended.wait(min(seconds, 0.01))  # another thread begins it
        elif all([other.wait(seconds) for other in behind]):
            self.begin_behind(behind)

    def _wait_here(self, seconds: float) -> None:
        if self.has_ended:
            return
        code = _library.load().rueda_wait(self._handle, math.ceil(seconds * 1e3), None)
        if code == TIMEOUT:
            return
        if code < 0:
            hint = self.hint if code == MISMATCH else ""
            return self._end(error_for(code, f"{self.what}: {_library.last_error()}{hint}"))
        try:
            assert self._finish is not None
            self.result = self._finish()
        except Exception as error:
            return self._end(error)
        self._end(None)

    def _end(self, error: Optional[BaseException]) -> None:
        self.error = error
        # breaks a cycle: on_error is the group's, and the group keeps this operation
        on_error, self.on_error = self.on_error, None
        if error is not None and on_error is not None:
            on_error(error)
        self._finish = self._memory = None
        self._has_ended.set()
