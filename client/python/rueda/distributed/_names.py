"""Names of collectives that have none. PyTorch tells a process group's collectives apart by the order of the calls, the
daemons by name; and what comes again under its name every step is cached by them, and its order locked."""

from __future__ import annotations

from collections import Counter
from typing import Dict, Hashable, List

# A round that is longer has no end that could be told.
_LONGEST_ROUND = 1024
# From here on, and again whenever it has doubled, a round's beginning is looked at anew.
_SHORTEST_LOOK = 128
# How many calls in which no round is known may be in flight before a name comes again.
_WITHOUT_ROUND = 64
# Likewise where a program calls nothing else: few enough for the daemons to see that they repeat.
_SAME_ALONE = 8
# How many rounds are known again, by what they begin with.
_KNOWN_ROUNDS = 16


class Names:
    """Gives each call its number in the current round, where a round is what a program does again and again: a training
    step. It depends on nothing but the kinds of the calls before. So ranks that make the same calls in the same order, as
    PyTorch asks of them, come to the same names; and where they do not, the first call in which they differ has one
    name on all of them, and the daemons say how they differ. Not thread-safe.

    A round begins when the kind that began the last one comes again after others; as long as it repeats, it is known
    beforehand what comes. That kind may turn out to come never again (what a model sends round when it is made): then
    the rarest one that does takes its place.
    """

    def __init__(self) -> None:
        self._known: "Dict[Hashable, List[Hashable]]" = {}  # rounds, by their first kind
        self._round: List[Hashable] = []  # which repeats; empty: none is known to
        self._next = 0  # the next call's number
        self._begin_to_learn()

    def number_of(self, kind: Hashable) -> int:
        """The number of this call, which is of `kind`: what is in flight under the same one must end before it begins."""
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
        # A validation, or something that is done in some steps alone. What it began with is the first of a round next time.
        self._round = []
        self._begin_to_learn()

    def _begin_to_learn(self) -> None:
        self._first: Hashable = None
        self._so_far: List[Hashable] = []  # of the round that begins with _first
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

    # So many of its calls have been made already in the one that begins now.
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
            self._first = min(repeated, key=lambda kind: self._counts[kind])  # of equals, the earliest
            self._so_far = []
