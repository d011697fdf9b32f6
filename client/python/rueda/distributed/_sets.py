"""Makes process sets for PyTorch's groups. PyTorch asks only a group's members to make a group, Rueda asks all ranks of the job
to add a set: so the members ask rank 0, and rank 0 tells all ranks, in one order, which sets come and go."""

from __future__ import annotations

import logging
import queue
import threading
from collections import Counter
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from .._core import _context, _process_sets
from .._core._errors import RuedaError, RuedaInternalError
from .._core._process_sets import ProcessSet

# This limits the wait at the end of a process: a change in which other ranks do not take part, as after an error, is not waited
# for longer.
_LEAVE_S = 1.0
_LOG = logging.getLogger("rueda.distributed")

Ranks = Tuple[int, ...]
Tell = Callable[[int, Any], Any]


class Registry:
    """Implements rank 0's part, which counts who uses which set. It is called on one thread."""

    def __init__(self, size: int, tell: Tell) -> None:
        self._size = size
        self._tell = tell
        self._users: "Dict[Ranks, Counter[int]]" = {}
        self._changes = 0

    def acquire(self, rank: int, ranks: Ranks) -> None:
        """Counts a member's request for a set. Every member makes one, once for each group, and is told when the set is there."""
        if ranks not in self._users:
            self._users[ranks] = Counter()
            self._tell_all("add", ranks)
        self._users[ranks][rank] += 1
        self._tell(rank, {"do": "grant", "ranks": ranks, "change": self._changes})

    def release(self, rank: int, ranks: Ranks) -> None:
        """Counts that a member has released a set. The set is removed when none of its ranks uses it."""
        users = self._users[ranks]
        users[rank] -= 1
        if not +users:
            del self._users[ranks]
            self._tell_all("remove", ranks)

    def _tell_all(self, what: str, ranks: Ranks) -> None:
        self._changes += 1
        for rank in range(self._size):
            self._tell(rank, {"do": what, "ranks": ranks})


class Sets:
    """Implements every rank's part. acquire() and release() may be called from any thread; on_message is called on the loop of
    the ranks' messages."""

    def __init__(self, rank: int, size: int, tell: Tell) -> None:
        self._rank = rank
        self._size = size
        self._tell = tell
        self._registry = Registry(size, tell) if rank == 0 else None
        self._changes: "queue.SimpleQueue[Optional[Tuple[str, Ranks]]]" = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._made = 0
        self._granted: "Dict[Ranks, List[int]]" = {}  # the numbers of the changes, for each acquire() that waits
        self._sets: Dict[Ranks, ProcessSet] = {}
        self._lent: Set[Ranks] = set()
        self._errors: Dict[Ranks, RuedaError] = {}
        self._thread = threading.Thread(target=self._make_changes, name="rueda-sets", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._changes.put(None)
        self._thread.join(_LEAVE_S)

    def acquire(self, ranks: List[int], seconds: float) -> int:
        """Returns the number of the process set of these ranks, of which this rank is one. All of them call it, and wait for the
        job's other ranks, which need not do anything.

        Raises:
            RuntimeError: it took longer than `seconds`, or there are 64 sets.
        """
        key = tuple(sorted(ranks))
        if len(key) == self._size:
            return 0
        self._tell(0, {"do": "acquire", "ranks": key})
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_made(key), seconds):
                raise RuntimeError(f"the group of ranks {list(key)} was not made within {seconds:g} s: another rank of the "
                                   "job has ended, or is stuck in a change of process sets")
            self._granted[key].pop(0)
            if key in self._errors:
                raise RuntimeError(f"the group of ranks {list(key)} cannot be made: {self._errors[key]}")
            set_id = self._sets[key].process_set_id
        assert set_id is not None
        return set_id

    def release(self, ranks: List[int]) -> None:
        """Undoes one acquire()."""
        key = tuple(sorted(ranks))
        if len(key) < self._size:
            self._tell(0, {"do": "release", "ranks": key})

    def on_message(self, rank: int, message: Any) -> None:
        """Handles a message from another rank, or from this one itself."""
        ranks = tuple(message["ranks"])
        if message["do"] == "acquire" and self._registry:
            self._registry.acquire(rank, ranks)
        elif message["do"] == "release" and self._registry:
            self._registry.release(rank, ranks)
        elif message["do"] == "grant":
            with self._changed:
                self._granted.setdefault(ranks, []).append(message["change"])
                self._changed.notify_all()
        else:
            self._changes.put((message["do"], ranks))

    def _is_made(self, key: Ranks) -> bool:
        granted = self._granted.get(key)
        return bool(granted and self._made >= granted[0])

    def _make_changes(self) -> None:
        while True:
            change = self._changes.get()
            if change is None:
                return
            self._make(*change)

    # A set of these ranks that the program itself has added, by rueda.add_process_set(), serves the group as well, and stays.
    def _add(self, ranks: Ranks) -> ProcessSet:
        try:
            return _process_sets.add_process_set(ranks)
        except RuedaError:
            there = next((one for one in _process_sets.added() if tuple(one.ranks) == ranks), None)
            if there is None:
                raise
            self._lent.add(ranks)
            return there

    def _make(self, what: str, ranks: Ranks) -> None:
        error: Optional[RuedaError] = None
        made: Optional[ProcessSet] = None
        try:
            if what == "add":
                made = self._add(ranks)
            elif ranks in self._lent:
                self._lent.remove(ranks)
            elif ranks in self._sets:
                _process_sets.remove_process_set(self._sets[ranks])
        except RuedaError as failed:
            error = failed
            # A set ends with the job, so its removal may then fail.
            is_end = what == "remove" and (isinstance(failed, RuedaInternalError) or not _context.is_initialized())
            _LOG.log(logging.INFO if is_end else logging.WARNING, "rank %d: to %s the process set of ranks %s failed: %s",
                     self._rank, what, list(ranks), failed)
        with self._changed:
            self._errors.pop(ranks, None)
            if what == "remove":
                self._sets.pop(ranks, None)
            elif made is not None:
                self._sets[ranks] = made
            elif error is not None:
                self._errors[ranks] = error
            self._made += 1
            self._changed.notify_all()
