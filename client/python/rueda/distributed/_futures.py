"""Runs the threads that end futures, begin operations that must wait for their names, and look after operations that have several parts."""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections import deque
from typing import Callable, Deque, Dict, List, Optional, Tuple

from ._operation import Operation, Waitable

# Operations of one group nearly always end in the order of their calls. So the thread waits for the oldest, and looks at the
# others this often.
_LOOK_S = 0.01
# A thread that has had nothing to do for this time ends; the next future begins another one.
_IDLE_S = 5.0

# Operations that are looked after are polled this often.
_POLL_S = 0.02

Follow = Callable[[Waitable], None]


class Follower:
    """Calls back when operations have ended, from a thread of its own, which exists while there are any. Thread-safe."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._news: "queue.SimpleQueue[Optional[Tuple[Waitable, Follow]]]" = queue.SimpleQueue()  # None: close() was called
        self._lock = threading.Lock()
        self._thread: Optional[threading.Thread] = None
        self._followed: List[Tuple[Waitable, Follow]] = []  # only the thread uses it
        self._is_closed = False

    def follow(self, operation: Waitable, then: Follow) -> None:
        """Calls then(operation) when it has ended."""
        with self._lock:
            self._news.put((operation, then))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Says that hardly any more operations come, so that the thread ends with the last one, and not _IDLE_S after it. It may be
        called at any moment, also while this thread is in another method."""
        self._is_closed = True
        self._news.put(None)

    # Is the thread. It refers to no operation that has ended while it waits for the next one.
    def _run(self) -> None:
        while True:
            self._take_news()
            if self._followed:
                self._call_back()
                continue
            with self._lock:
                if self._news.empty():
                    self._thread = None
                    return

    # Takes all that is new. Waits for it if there is nothing else to do.
    def _take_news(self) -> None:
        try:
            while True:
                one = self._news.get(block=not self._followed and not self._is_closed, timeout=_IDLE_S)
                if one is not None:
                    self._followed.append(one)
        except queue.Empty:
            pass

    def _call_back(self) -> None:
        self._followed[0][0].wait(_LOOK_S)
        # Other threads may end operations at any moment, so each is looked at once.
        looked_at = [(pair, pair[0].poll()) for pair in self._followed]
        self._followed = [pair for pair, has_ended in looked_at if not has_ended]
        for (operation, then), has_ended in looked_at:
            if has_ended:
                then(operation)


def _begin(operation: Operation, after: Operation) -> None:
    operation.begin_behind([after])


class Watcher:
    """Polls operations now and then, so that they go on although nobody waits for them. The thread that does so sleeps most of the
    time, and those who do wait are not slower for it. Thread-safe."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._thread: Optional[threading.Thread] = None
        self._watched: List[Waitable] = []
        self._is_closed = False

    def watch(self, operation: Waitable) -> None:
        """Polls the operation until it has ended."""
        with self._lock:
            self._watched.append(operation)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Says that hardly any more operations come, so that the thread ends with the last one."""
        self._is_closed = True

    # Is the thread.
    def _run(self) -> None:
        idle_since = time.monotonic()
        while True:
            time.sleep(_POLL_S)
            with self._lock:
                watched = list(self._watched)
            _ = [one.poll() for one in watched]
            with self._lock:
                self._watched = [one for one in self._watched if not one.has_ended]
                if watched:
                    idle_since = time.monotonic()
                elif not self._watched and (self._is_closed or time.monotonic() - idle_since > _IDLE_S):
                    self._thread = None
                    return
            watched.clear()  # their tensors are not kept while the thread sleeps


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
