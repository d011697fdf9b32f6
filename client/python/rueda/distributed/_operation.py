"""Carries out one collective: an operation of librueda's, from its submission to the tensors that the caller sees."""

from __future__ import annotations

import math
import threading
import time
from typing import Any, Callable, List, Optional, Protocol, Tuple

import torch

from .._core import _library, _then
from .._core._errors import MISMATCH, TIMEOUT, RuedaError, error_for

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

    def when_ended(self, tell: Callable[[], None]) -> None:
        """Calls tell() once, when it is worth calling poll(): the operation has ended, or goes on if it is polled. Any thread may
        call tell(), also in this call, so it does next to nothing."""


class Operation:
    """An operation. Any thread may wait for it, and several may at a time. The thread that sees its end first finishes it.

    Where somebody wants to be told of the end (when_ended()), librueda is asked to tell of it, unless a thread is in librueda's wait
    already; threads that wait then wait for that, too.

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
        self.value = 0  # that of rueda_result, if it is wanted and the operation has succeeded
        self.wants_value = False
        self._behind: List[Waitable] = []  # what must have ended before it begins
        self._beginning = threading.Lock()  # is held by the thread that begins what has had to wait
        self._start: Optional[Callable[[], int]] = start
        self._finish: Optional[Callable[[], List[torch.Tensor]]] = finish
        self._memory = memory
        self._handle = 0
        self._waiting = threading.Lock()  # is held by the thread that is in librueda's wait, or finishes the operation
        self._has_begun = threading.Event()  # set, too, if it has ended without having begun
        self._has_ended = False
        self._is_told_of = False  # librueda has been asked to tell of the end
        self._outcome: Optional[Tuple[int, str]] = None  # what librueda has told: the code, and the text of an error
        self._is_told = threading.Event()  # is set with the outcome, and at the end
        self._telling = threading.Lock()  # is held while the next is changed
        self._tells: List[Callable[[], None]] = []  # whom to tell

    def begin(self) -> None:
        """Submits the operation. If the daemon refuses it, it has ended with an error."""
        assert self._start is not None
        start, self._start = self._start, None
        try:
            self._handle = start()
        except Exception as error:
            self._end(error)
        self._has_begun.set()
        self._see_to_tells()

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
        return self._has_ended

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
            elif not self._will_be_told or self._is_told.wait(left):
                self._wait_or_finish(deadline)
            if not self.has_ended and time.monotonic() >= deadline:
                return False
        return True

    def _wait_to_begin(self, seconds: float) -> None:
        behind = self._behind
        if not behind:
            self._has_begun.wait(seconds)  # another thread begins it
        elif all([other.wait(seconds) for other in behind]):
            self.begin_behind(behind)

    def when_ended(self, tell: Callable[[], None]) -> None:
        """Calls tell() when poll() would finish the operation, or it has ended; see Waitable."""
        with self._telling:
            # If another thread finishes it right now, its end is told of.
            is_there = self.has_ended or self._outcome is not None and not self._waiting.locked()
            if not is_there:
                self._tells.append(tell)
        if is_there:
            tell()
        else:
            self._see_to_tells()

    @property
    def _will_be_told(self) -> bool:
        return self._outcome is not None or self._is_told_of and not _then.is_over()

    # Sees to it that those who want to be told will be. Every thread comes here that has made an end of what kept another one from
    # doing so.
    def _see_to_tells(self) -> None:
        if not self._tells or self._handle == 0:
            return  # begin() comes here
        if self._outcome is not None:
            if not self._waiting.locked():  # otherwise whoever finishes the operation tells of the end, or comes here
                self._tell()
        elif not self._is_told_of and self._waiting.acquire(blocking=False):  # otherwise whoever waits comes here
            try:
                if not self.has_ended and not self._is_told_of:
                    self._is_told_of = (_then.call_with_value(self._handle, self._on_told_value) if self.wants_value else
                                        _then.call_when_ended(self._handle, self._on_told))
            except RuedaError as error:
                self._end(error_for(error.code, f"{self.what}: {error}"))
            finally:
                self._waiting.release()
            if self._outcome is not None:  # who was told meanwhile found the lock held, and could not finish the operation
                self._see_to_tells()

    # Is called by librueda's thread.
    def _on_told(self, code: int, text: str) -> None:
        self._outcome = (code, text)
        self._is_told.set()
        self._tell()

    def _on_told_value(self, code: int, text: str, value: int) -> None:
        self.value = value
        self._on_told(code, text)

    def _tell(self) -> None:
        with self._telling:
            tells, self._tells = self._tells, []
        for tell in tells:
            tell()

    def _wait_or_finish(self, deadline: float) -> None:
        left = max(0.0, min(deadline - time.monotonic(), _SIGNAL_SLICE_S))
        if not self._waiting.acquire(timeout=left):
            return
        try:
            if self.has_ended:
                return
            if self._outcome is not None:
                self._settle(*self._outcome)
            elif not self._will_be_told:
                self._wait_here(left)
        finally:
            self._waiting.release()
        if not self.has_ended:
            self._see_to_tells()

    def _wait_here(self, seconds: float) -> None:
        told = _library.Result() if self.wants_value else None
        code = _library.load().rueda_wait(self._handle, math.ceil(seconds * 1e3), None if told is None else _library.byref(told))
        if code != TIMEOUT:
            self.value = 0 if told is None else int(told.value)
            self._settle(code, _library.last_error() if code < 0 else "")

    # Makes librueda's end this operation's.
    def _settle(self, code: int, text: str) -> None:
        if code < 0:
            hint = self.hint if code == MISMATCH else ""
            return self._end(error_for(code, f"{self.what}: {text}{hint}"))
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
        self._has_ended = True
        self._has_begun.set()
        self._is_told.set()
        self._tell()
