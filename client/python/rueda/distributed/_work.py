"""What a collective returns: PyTorch's Work over an operation of the daemons, or over a transfer between two ranks."""

from __future__ import annotations

import copy
import sys
from collections import deque
from datetime import timedelta
from typing import Any, Deque, List, Optional

import torch
from torch._C._distributed_c10d import Work as TorchWork

from ._futures import Follower
from ._operation import Waitable


# PyTorch 1.13 waits for what C++ asked for (DDP's constructor does) through the base class once nobody in Python refers
# to it any more, and so for ever. Nothing there waits for more of them at a time.
_KEPT_FOR_C = 1024
_kept: Deque[Any] = deque(maxlen=_KEPT_FOR_C if torch.__version__.startswith("1.") else 0)
# Those of them that still have their tensors. What nobody in Python refers to, and has ended, is asked no more than whether it has
# failed.
_with_tensors: Deque["Work"] = deque(maxlen=_kept.maxlen)
_LOOKED_AT = 4  # for each new one: more than one, so that they become fewer
_KEPT_ALONE = 3  # references: _kept's, a variable, and the argument of getrefcount()


def _again(error: BaseException) -> BaseException:
    """The error, for who waits: another object, as what is raised refers to the frames of who waits, and those to the work."""
    try:
        return copy.copy(error).with_traceback(error.__traceback__)
    except Exception:  # of a kind that cannot be copied
        return error


class _Ended:
    """What is left of an operation without its tensors."""

    has_ended = True

    def __init__(self, operation: Waitable) -> None:
        self.what, self.error = operation.what, operation.error
        self.result: List[torch.Tensor] = []

    def poll(self) -> bool:
        return True

    def wait(self, timeout: Optional[float]) -> bool:
        return True


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
    """Thread-safe. `seconds` is how long wait() waits if it is not told otherwise."""

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
        """Returns True when it is done. RuntimeError: it has failed, and the text says why, or the time is up; then it
        goes on. For tensors in a GPU's memory and without `timeout` the current stream waits, and this thread does not: what
        fails after that is the error of the group's next call."""
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
        """Gets the list of tensors, or the error. Its callbacks run in a thread of the group's."""
        if self._future is None:
            # An error that a callback raises is one for C++, too. What set_exception() sets is a result to DDP.
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
