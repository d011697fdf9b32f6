"""Runs the threads that end futures, begin operations that must wait for their names, and look after operations that have several parts."""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections import deque
from functools import partial
from typing import Callable, Deque, Dict, Optional

from ._operation import Operation, Waitable

# A thread that has had nothing to do for this time ends; the next future begins another one.
_IDLE_S = 5.0

# Somebody has waited for an operation by then, most of the time, and then nobody needs to be told of its end.
_GRACE_S = 0.02

Follow = Callable[[Waitable], None]


class Follower:
    """Calls back when operations have ended, from a thread of its own, which exists while there are any and sleeps until it is told
    of an end. Thread-safe."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: "queue.SimpleQueue[Optional[Callable[[], None]]]" = queue.SimpleQueue()  # None: close() was called
        self._lock = threading.Lock()
        self._thread: Optional[threading.Thread] = None
        self._following = 0  # counts the operations that have not been called back for; the lock is held for a change
        self._is_closed = False

    def follow(self, operation: Waitable, then: Follow, grace_s: float = 0.0) -> None:
        """Calls then(operation) when it has ended. With `grace_s` that may be so much later, and who waits for the operation until then
        is not slower for it."""
        with self._lock:
            self._following += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        if grace_s > 0:
            self._jobs.put(partial(self._listen_later, operation, then, time.monotonic() + grace_s))
        else:
            self._listen(operation, then)

    def close(self) -> None:
        """Says that hardly any more operations come, so that the thread ends with the last one, and not _IDLE_S after it. It may be
        called at any moment, also while this thread is in another method."""
        self._is_closed = True
        self._jobs.put(None)

    # Is the thread. It refers to no operation that has ended while it waits for the next one.
    def _run(self) -> None:
        while True:
            is_following = self._following > 0
            try:
                job = self._jobs.get(block=is_following or not self._is_closed, timeout=None if is_following else _IDLE_S)
            except queue.Empty:
                with self._lock:
                    if self._following == 0 and self._jobs.empty():
                        self._thread = None
                        return
                continue
            if job is not None:
                job()
            del job

    def _listen(self, operation: Waitable, then: Follow) -> None:
        operation.when_ended(lambda: self._jobs.put(partial(self._look, operation, then)))

    def _listen_later(self, operation: Waitable, then: Follow, due: float) -> None:
        time.sleep(max(0.0, due - time.monotonic()))
        self._listen(operation, then)

    # What has told of its end may have several parts, of which another one begins now, or another thread may be finishing it.
    def _look(self, operation: Waitable, then: Follow) -> None:
        if not operation.poll():
            self._listen(operation, then)
            return
        with self._lock:
            self._following -= 1
        then(operation)


def _begin(operation: Operation, after: Operation) -> None:
    operation.begin_behind([after])


def _ignore(_: Waitable) -> None:
    pass


class Watcher:
    """Sees to it that operations go on although nobody waits for them. Those who do wait are not slower for it. Thread-safe."""

    def __init__(self, name: str) -> None:
        self._follower = Follower(name)

    def watch(self, operation: Waitable) -> None:
        """Polls the operation whenever it can go on, until it has ended."""
        self._follower.follow(operation, _ignore, _GRACE_S)

    def close(self) -> None:
        """Says that hardly any more operations come, so that the thread ends with the last one."""
        self._follower.close()


class LastOfNames:
    """Holds the last operation of each name, for groups that have the same names one after the other. `lock` is held while it is
    used."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.operations: "Dict[str, weakref.ref[Operation]]" = {}


class Turns:
    """Begins operations, those of one name one after the other, and keeps them alive until they have ended, because the daemon
    reads and writes their memory. Not thread-safe."""

    def __init__(self, follower: Follower, watcher: Watcher, last: LastOfNames) -> None:
        self._follower = follower
        self._watcher = watcher
        self._in_flight: Deque[Operation] = deque()
        self._last = last

    def close(self) -> None:
        """Says that hardly any more operations come."""
        self._follower.close()
        self._watcher.close()

    def is_busy(self) -> bool:
        """Returns whether operations are in flight. Lets go of those that have ended."""
        while self._in_flight and self._in_flight[0].poll():
            self._in_flight.popleft()
        return bool(self._in_flight)

    def begin(self, name: str, operation: Operation, after: Optional[Operation] = None) -> None:
        """Begins an operation at once, or when the earlier operation of the same name has ended, and `after` has succeeded; if `after`
        fails, the operation ends with its error.

        Raises:
            RuntimeError: an operation that a stream was left to wait for has failed; this one is not begun.
        """
        while self._in_flight and self._in_flight[0].poll():
            ended = self._in_flight.popleft()
            if getattr(ended, "is_stream_pending", False) and ended.error is not None:
                raise ended.error
        with self._last.lock:
            before = self._last.operations.get(name)
            earlier = before() if before is not None else None
            self._last.operations[name] = weakref.ref(operation)
            self._in_flight.append(operation)
            if after is not None:
                self._begin_after(operation, after, earlier)
            elif earlier is None or earlier.poll():
                operation.begin()
            else:
                self._follower.follow(earlier, lambda _: operation.begin())

    # The thread begins it even if nobody waits for it. How the earlier operation of the name has ended does not matter.
    def _begin_after(self, operation: Operation, after: Operation, earlier: Optional[Operation]) -> None:
        if earlier is not None and not earlier.poll():
            self._follower.follow(earlier, lambda _: self._begin_after(operation, after, None))
        elif not operation.begin_behind([after]):
            self._follower.follow(after, lambda _: _begin(operation, after))
