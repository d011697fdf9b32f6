"""Implements what a Work stands for if it is no operation of the daemons."""

from __future__ import annotations

import threading
import time
from typing import Callable, List, Optional, Sequence

import torch

from .._core import _library
from ._operation import Operation, Waitable
from ._work import Work


# This many messages are kept before it is looked which have ended.
_LOOK_AT = 64


class Message(Operation):
    """A send or a recv through the daemons. `ranks` has the job's ranks, by their places in the group."""

    def __init__(self, what: str, start: Callable[[], int], finish: Callable[[], List[torch.Tensor]], memory: object,
                 ranks: Sequence[int]) -> None:
        super().__init__(what, start, finish, memory)
        self.wants_value = True
        self._places = ranks

    @property
    def source(self) -> int:
        """The place of the rank at the other end; -1 before the end, and after an error."""
        return self._places.index(self.value) if self.has_ended and self.error is None else -1

    def cancel(self) -> None:
        """Takes the message back if it has met no other half; it then ends with an error. It has no effect on one that has ended."""
        if not self.has_ended and self._handle != 0:
            _library.load().rueda_cancel(self._handle)  # an error says that another thread has just seen the end


class Kept:
    """Keeps messages alive until they have ended, because the daemon reads and writes their memory. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._messages: List[Message] = []
        self._look_at = _LOOK_AT

    def keep(self, message: Message) -> None:
        with self._lock:
            self._messages.append(message)
            if len(self._messages) >= self._look_at:
                self._messages = [one for one in self._messages if not one.poll()]
                self._look_at = max(_LOOK_AT, 2 * len(self._messages))


class Finished:
    """Stands for something that was done in the call itself."""

    def __init__(self, what: str, result: List[torch.Tensor]) -> None:
        self.what = what
        self.result = result
        self.error: Optional[BaseException] = None
        self.has_ended = True

    def poll(self) -> bool:
        return True

    def wait(self, timeout: Optional[float]) -> bool:
        return True

    def when_ended(self, tell: Callable[[], None]) -> None:
        tell()


class All:
    """Makes several of these one."""

    def __init__(self, what: str, works: Sequence[Work]) -> None:
        self.what = what
        self._parts: List[Waitable] = [work.operation for work in works]

    @property
    def result(self) -> List[torch.Tensor]:
        return [tensor for part in self._parts for tensor in part.result]

    @property
    def error(self) -> Optional[BaseException]:
        return next((part.error for part in self._parts if part.error is not None), None)

    @property
    def has_ended(self) -> bool:
        return all(part.has_ended for part in self._parts)

    def poll(self) -> bool:
        return all([part.poll() for part in self._parts])

    def wait(self, timeout: Optional[float]) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout
        return all([part.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
                    for part in self._parts])

    def when_ended(self, tell: Callable[[], None]) -> None:
        parts = [part for part in self._parts if not part.has_ended]
        others = iter(range(len(parts) - 1, -1, -1))  # next() says how many are left, to one thread at a time

        def count() -> None:
            if next(others) == 0:
                tell()

        for part in parts:
            part.when_ended(count)
        if not parts:
            tell()


class Repeated:
    """Stands for an operation that is made in another way if it fails with a certain error.

    Args:
        first: the operation.
        is_repeated: says whether an error of the operation is that error.
        again: begins it in the other way. It may wait for other ranks, and is called once, by a thread that waits for the result or
            polls it.
    """

    def __init__(self, first: Operation, is_repeated: Callable[[BaseException], bool], again: Callable[[], Waitable]) -> None:
        self.what = first.what
        self._first = first
        self._is_repeated = is_repeated
        self._again: Optional[Callable[[], Waitable]] = again
        self._current: Waitable = first
        self._failed: Optional[BaseException] = None
        self._repeating = threading.Lock()

    @property
    def result(self) -> List[torch.Tensor]:
        return self._current.result

    @property
    def error(self) -> Optional[BaseException]:
        return self._failed if self._failed is not None else self._current.error

    @property
    def has_ended(self) -> bool:
        return self._failed is not None or self._again is None and self._current.has_ended

    def poll(self) -> bool:
        return self.wait(0.0)

    def wait(self, timeout: Optional[float]) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout
        if not self._first.wait(timeout):
            return False
        with self._repeating:
            again, self._again = self._again, None
            if again is not None and self._first.error is not None and self._is_repeated(self._first.error):
                try:
                    self._current = again()
                except Exception as error:
                    self._failed = error
        if self._failed is not None:
            return True
        return self._current.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))

    def when_ended(self, tell: Callable[[], None]) -> None:
        if self.has_ended:
            tell()
        elif self._again is not None:
            self._first.when_ended(tell)  # poll() then goes on with it
        else:
            self._current.when_ended(tell)
