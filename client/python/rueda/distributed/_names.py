"""Makes names for collectives that have none. PyTorch tells a process group's collectives apart by the order of the calls, the
daemons by name. A collective that comes again under its name every step is cached by the daemons, and its order is locked."""

from __future__ import annotations

from collections import Counter
from typing import Dict, Hashable, List

# A longer round is not recognised.
_LONGEST_ROUND = 1024
# After this many calls, and again whenever their number has doubled, the beginning of the round is chosen anew.
_SHORTEST_LOOK = 128
# While no round is known, names come again after this many calls, which may be in flight together.
_WITHOUT_ROUND = 64
# The same number for a program that makes calls of one kind alone: it is small enough for the daemons to see that they repeat.
_SAME_ALONE = 8
# This many rounds are remembered, by the kind that they begin with.
_KNOWN_ROUNDS = 16


class Names:
    """Gives each call its number in the current round, where a round is what a program does again and again: a training step.

    The number depends on nothing but the kinds of the calls before. So ranks that make the same calls in the same order, as
    PyTorch asks of them, come to the same names; and if they do not, the first call in which they differ has one name on all of
    them, and the daemons say how they differ. Not thread-safe.

    A round begins when the kind that began the last round comes again after others; as long as the round repeats, it is known
    beforehand what comes. That kind may turn out to come never again (what a model sends round when it is made): then the rarest
    kind that does come again takes its place."""

    def __init__(self) -> None:
        self._known: "Dict[Hashable, List[Hashable]]" = {}  # rounds, by their first kinds
        self._round: List[Hashable] = []  # the round that repeats; empty if none is known
        self._next = 0  # the number of the next call
        self._begin_to_learn()

    def number_of(self, kind: Hashable) -> int:
        """Returns the number of this call, which is of `kind`. A call in flight under the same number must end before this one
        begins."""
        number = self._next
        if self._round:
            self._follow(kind, number)
        else:
            self._learn(kind)
        return number

    def _follow(self, kind: Hashable, place: int) -> None:
        if kind == self._round[place]:
            self._next = (place + 1) % len(self._round)
            return
        # The call leaves the round: a validation, or something that is done only in some steps. What began that part is the first
        # kind of a round next time.
        self._round = []
        self._begin_to_learn()

    def _begin_to_learn(self) -> None:
        self._first: Hashable = None
        self._so_far: List[Hashable] = []  # the calls of the round that begins with _first
        self._counts: "Counter[Hashable]" = Counter()
        self._calls = 0
        self._look_at = _SHORTEST_LOOK
        self._next = 0

    def _learn(self, kind: Hashable) -> None:
        if kind == self._first and len(set(self._so_far)) > 1:
            self._take_round(self._so_far, 1)
            return
        if self._first is None:
            self._first = kind
        if kind == self._first or self._so_far:
            self._so_far.append(kind)
        self._counts[kind] += 1
        self._calls += 1
        if self._so_far and self._so_far == self._known.get(self._so_far[0]):
            self._take_round(self._so_far, 0)
            return
        if self._calls >= _LONGEST_ROUND:
            self._begin_to_learn()
            return
        if self._calls == self._look_at:
            self._look_for_a_beginning()
        self._next = self._calls % (_SAME_ALONE if len(self._counts) == 1 else _WITHOUT_ROUND)

    # Makes `kinds` the current round, of which `place` calls have been made already.
    def _take_round(self, kinds: List[Hashable], place: int) -> None:
        self._round = kinds
        self._next = place
        self._known.pop(kinds[0], None)
        self._known[kinds[0]] = kinds
        if len(self._known) > _KNOWN_ROUNDS:
            del self._known[next(iter(self._known))]

    def _look_for_a_beginning(self) -> None:
        self._look_at *= 2
        repeated = [kind for kind, count in self._counts.items() if count > 2]
        if repeated and self._counts[self._first] == 1:
            self._first = min(repeated, key=lambda kind: self._counts[kind])  # the earliest of equally rare kinds
            self._so_far = []
