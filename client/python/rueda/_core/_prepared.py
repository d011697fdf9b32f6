"""Prepares an allreduce that every training step asks for, in the same memory: what librueda is told is put together once."""

from __future__ import annotations

import ctypes
from typing import Optional, Sequence

from . import _library, _operations
from ._errors import TIMEOUT, error_for
from ._library import ReduceOptions, Tensor, byref, check

_SIGNAL_SLICE_MS = 500  # a waiting thread wakes this often, for Ctrl-C
_sizing = _operations.what_waits_for_sizes()


class PreparedAllreduce:
    """Makes an allreduce of one tensor or, with `group`, of several tensors that are reduced together. The tensors' memory and
    the session must live as long as this object. Not thread-safe."""

    def __init__(self, tensors: Sequence[Tensor], options: ReduceOptions, group: Optional[str] = None) -> None:
        library = _library.load()
        self._memory = ((Tensor * len(tensors))(*tensors), options)
        self._handle = ctypes.c_uint64()
        if group is None:
            self._submit = library.rueda_allreduce_async
            self._arguments = (byref(self._memory[0][0]), byref(options), byref(self._handle))
        else:
            self._submit = library.rueda_grouped_allreduce_async  # type: ignore[assignment]
            self._arguments = (group.encode(), self._memory[0], len(tensors), byref(options),  # type: ignore
                               byref(self._handle))
        self._wait = library.rueda_wait

    def begin(self) -> None:
        """Submits the allreduce.

        Raises:
            RuedaError: the daemon refuses it.
        """
        code = self._submit(*self._arguments)
        if code < 0:
            raise error_for(code, _library.last_error())

    def is_done(self) -> bool:
        """Returns whether wait() would return at once."""
        done = ctypes.c_int()
        check(_library.load().rueda_test(self._handle, byref(done)))
        return done.value != 0

    def wait(self) -> None:
        """Sleeps until the allreduce has ended.

        Raises:
            RuedaError: it failed.
        """
        if _sizing:  # other operations wait for sizes, and must go on meanwhile
            _operations.synchronize(_operations.register(self._handle.value, []))
            return
        code = TIMEOUT
        while code == TIMEOUT:
            code = self._wait(self._handle, _SIGNAL_SLICE_MS, None)
        if code < 0:
            raise error_for(code, _library.last_error())
