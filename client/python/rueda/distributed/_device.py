"""Implements collectives of tensors in a GPU's memory: those that the GPU worker makes, for whose end streams wait, and all
others, which go through the host's memory."""

from __future__ import annotations

import functools
import threading
from typing import Any, Callable, Dict, List, Optional, Tuple, TypeVar

import torch

from .._core import _library
from .._core._errors import error_for
from .._torch_common import _device
from ._operation import Operation, Waitable
from ._work import Work

_Method = TypeVar("_Method", bound=Callable[..., Work])

# An operation that has ended in librueda has a result soon after.
_ENDS_WITHIN_S = 10.0


class DeviceOperation(Operation):
    """An operation on tensors in device memory. wait_on_stream() lets the current stream wait; all other methods are as with
    other operations, and wait on the host."""

    def __init__(self, what: str, start: Callable[[], int], finish: Callable[[], List[torch.Tensor]], memory: Any,
                 device: _device.Cuda, tensor: torch.Tensor) -> None:
        self._finished = threading.Lock()
        self._is_finished = False
        self._results: List[torch.Tensor] = []
        self._device, self._tensor, self._make = device, tensor, finish
        self.is_stream_pending = False  # true: a stream waits for the operation, and nobody has asked how it ended
        super().__init__(what, start, self._finish_once, memory)

    @property
    def devices(self) -> List[torch.device]:
        return [self._tensor.device]

    def wait_on_stream(self, timeout: Optional[float]) -> bool:
        """Lets the current stream wait. Returns False if the operation has not begun within `timeout` seconds, because an earlier
        one of its name has not ended. An error that is known by now is in `error`."""
        if not self._has_begun.wait(timeout):
            return False
        if self.poll():
            return True
        code = _library.load().rueda_device_wait(self._handle, self._device.stream_of(self._tensor))
        if code < 0:
            # Another thread has seen the end of the handle meanwhile, and is about to make it this operation's end.
            if self.wait(_ENDS_WITHIN_S):
                return True
            raise error_for(code, _library.last_error())
        self.is_stream_pending = True
        self._finish_once()
        return True

    def _finish_once(self) -> List[torch.Tensor]:
        """Finishes the operation in the order of the stream of whoever is the first to wait."""
        with self._finished:
            if not self._is_finished:
                self._results, self._is_finished = self._make(), True
        return self._results


class ThroughHost:
    """An operation on copies in the host's memory. When it has ended, the results are copied back."""

    def __init__(self, inner: Waitable, back: "List[Tuple[torch.Tensor, torch.Tensor]]") -> None:
        self.what = inner.what
        self._inner = inner
        self._back = back  # pairs of the caller's tensor and the host's copy
        self._copying = threading.Lock()
        self._is_back = False

    @property
    def result(self) -> List[torch.Tensor]:
        callers = {id(host): tensor for tensor, host in self._back}
        return [callers.get(id(tensor), tensor) for tensor in self._inner.result]

    @property
    def error(self) -> Optional[BaseException]:
        return self._inner.error

    @property
    def source(self) -> int:
        return int(getattr(self._inner, "source", -1))

    @property
    def devices(self) -> List[torch.device]:
        return list({tensor.device for tensor, _ in self._back if tensor.is_cuda})

    @property
    def has_ended(self) -> bool:
        return self._is_back

    def poll(self) -> bool:
        return self.wait(0.0)

    def wait(self, timeout: Optional[float]) -> bool:
        if not self._inner.wait(timeout):
            return False
        with self._copying:
            if not self._is_back and self._inner.error is None:
                for tensor, host in self._back:
                    device = _device.find(tensor)
                    assert device is not None
                    device.write(tensor, host)
            self._is_back = True
        return True

    def when_ended(self, tell: Callable[[], None]) -> None:
        self._inner.when_ended(tell)


def through_host(what: str, writes: bool = True) -> Callable[[_Method], _Method]:
    """Decorates a method that has no form for device memory: it gets copies in the host's memory, with a warning. With `writes`,
    the method writes its first argument."""
    def wrap(method: _Method) -> _Method:
        @functools.wraps(method)
        def call(self: Any, *arguments: Any, **named: Any) -> Work:
            copies: Dict[int, Tuple[torch.Tensor, torch.Tensor]] = {}
            written = 0
            given: List[Any] = []
            for one in (*arguments, *named.values()):
                given.append(_on_host(one, copies))
                if len(given) == 1 and writes:
                    written = len(copies)
            if not copies:
                return method(self, *arguments, **named)
            _device.warn_of_host(what)
            work = method(self, *given[:len(arguments)], **dict(zip(named, given[len(arguments):])))
            wrapped: Work = self.wrapped(work, list(copies.values())[:written])
            return wrapped

        return call  # type: ignore[return-value]

    return wrap


def _on_host(argument: Any, copies: "Dict[int, Tuple[torch.Tensor, torch.Tensor]]") -> Any:
    """Returns the argument with each tensor in device memory replaced by its one copy."""
    if isinstance(argument, torch.Tensor):
        if _device.find(argument) is None:
            return argument
        if id(argument) not in copies:
            copies[id(argument)] = (argument, _device.quietly_on_host(argument))
        return copies[id(argument)][1]
    if isinstance(argument, (list, tuple)):
        return [_on_host(one, copies) for one in argument]
    return argument
