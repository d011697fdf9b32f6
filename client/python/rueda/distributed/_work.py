"""Implements what a collective returns: PyTorch's Work over an operation of the daemons, or over a transfer between two ranks."""

from __future__ import annotations

import copy
import sys
from collections import deque
from datetime import timedelta
from typing import Any, Callable, Deque, List, Optional

import torch
from torch._C._distributed_c10d import Work as TorchWork

from ._futures import Follower
from ._operation import Waitable


# PyTorch 1.13 waits, through the base class, for a Work that C++ asked for (DDP's constructor does) after nobody in Python refers
# to it any more, and so for ever. So this many are kept; nothing in PyTorch waits for more of them at a time.
_KEPT_FOR_C = 1024
_kept: Deque[Any] = deque(maxlen=_KEPT_FOR_C if torch.__version__.startswith("1.") else 0)
# The kept works that still have their tensors. A work that has ended, and that nobody in Python refers to, is only asked whether
# it has failed.
_with_tensors: Deque["Work"] = deque(maxlen=_kept.maxlen)
_LOOKED_AT = 4  # works that are looked at for each new one: more than one, so that their number falls
_KEPT_ALONE = 3  # references to a work that nobody else has: _kept's, a variable, and the argument of getrefcount()


def _again(error: BaseException) -> BaseException:
    """Returns a copy of the error for a waiting thread: an error that is raised refers to the frames of that thread, and those
    refer to the work."""
    try:
        return copy.copy(error).with_traceback(error.__traceback__)
    except Exception:  # the error cannot be copied
        return error


class _Ended:
    """Stands for an operation that has ended, without its tensors."""

    has_ended = True

    def __init__(self, operation: Waitable) -> None:
        self.what, self.error = operation.what, operation.error
        self.result: List[torch.Tensor] = []

    def poll(self) -> bool:
        return True

    def wait(self, timeout: Optional[float]) -> bool:
        return True

    def when_ended(self, tell: Callable[[], None]) -> None:
        tell()


def _let_tensors_go() -> None:
    for _ in range(_LOOKED_AT):
        try:
            work = _with_tensors.popleft()
        except IndexError:
            return
        if work.operation.has_ended and sys.getrefcount(work) <= _KEPT_ALONE:
            work.operation, work._future = _Ended(work.operation), None
        else:
            _with_tensors.append(work)


class Work(TorchWork):
    """The result of a collective. Thread-safe. `seconds` is how long wait() waits if it is not told otherwise."""

    def __init__(self, operation: Waitable, seconds: float, follower: Follower) -> None:
        super().__init__()
        self.operation = operation
        self._seconds = seconds
        self._follower = follower
        self._future: Optional[torch.futures.Future[List[torch.Tensor]]] = None
        _let_tensors_go()
        _kept.append(self)
        _with_tensors.append(self)

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        """Waits until the operation is done, and returns True. For tensors in a GPU's memory and without `timeout` the current
        stream waits, and this thread does not: a later failure is the error of the group's next call.

        Raises:
            RuntimeError: the operation has failed, and the text says why, or the time is up and the operation goes on.
        """
        seconds = timeout.total_seconds() if timeout else self._seconds
        wait = self.operation.wait if timeout else getattr(self.operation, "wait_on_stream", self.operation.wait)
        if not wait(seconds):
            raise RuntimeError(f"{self.operation.what}: Timed out after {seconds:g} s: not all ranks of the group have "
                               "called it, or one of them is stuck; the daemon's log and ruedactl name the ranks")
        if self.operation.error is not None:
            raise _again(self.operation.error)
        return True

    synchronize = wait

    def is_completed(self) -> bool:
        return self.operation.poll()

    def is_success(self) -> bool:
        return self.operation.poll() and self.operation.error is None

    def exception(self) -> Optional[BaseException]:
        return self.operation.error

    def result(self) -> List[torch.Tensor]:
        return self.operation.result

    def source_rank(self) -> int:
        return int(getattr(self.operation, "source", -1))

    _source_rank = source_rank

    def get_future(self) -> "torch.futures.Future[List[torch.Tensor]]":
        """Returns a future of the list of tensors, or of the error. Its callbacks run in a thread of the group's."""
        if self._future is None:
            # An error that a callback raises is an error for C++, too. DDP would take what set_exception() sets for a result.
            devices = getattr(self.operation, "devices", [])
            ended: torch.futures.Future[None] = torch.futures.Future(devices=[one for one in devices if one.type == "cuda"])
            future: torch.futures.Future[List[torch.Tensor]] = ended.then(self._deliver)
            self._future = future

            def end(_: Waitable) -> None:
                ended.set_result(None)

            self._follower.follow(self.operation, end)
        return self._future

    def _deliver(self, _: Any) -> List[torch.Tensor]:
        if self.operation.error is not None:
            raise _again(self.operation.error)
        return self.operation.result
