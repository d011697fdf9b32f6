"""Names of collectives that have none. PyTorch tells a process group's collectives apart by the order of the calls, the
daemons by name; and what comes again under its name every step is cached by them, and its order locked."""

from __future__ import annotations

from collections import Counter
from typing import Hashable

# A round that is longer has no end that could be told.
_LONGEST_ROUND = 1024
# From here on, and again whenever it has doubled, a round's beginning is looked at anew.
_SHORTEST_LOOK = 128
# How many of one kind may be in flight before a name comes again.
_SAME_IN_A_ROUND = 64
# Likewise where a program calls nothing else: few enough for the daemons to see that they repeat.
_SAME_ALONE = 8


class Names:
    """Gives each call a kind's number in the current round, where a round is what a program does again and again: a
    training step. It depends on nothing but the kinds of the calls so far. So ranks that make the same calls in the
    same order, as PyTorch asks of them, come to the same names. Not thread-safe.

    A round begins when the kind that began the last one comes again after others. That kind may turn out to come never
    again (what a model sends round when it is made): then the rarest one that does takes its place.
    """

    def __init__(self) -> None:
        self._first: Hashable = None
        self._counts: "Counter[Hashable]" = Counter()
        self._calls = 0
        self._look_at = _SHORTEST_LOOK

    def number_of(self, kind: Hashable) -> int:
        """The number of this call of `kind`: what is in flight under the same one must end before it begins."""
        if self._calls >= _LONGEST_ROUND or (kind == self._first and len(self._counts) > 1):
            self._begin_round()
        if self._first is None:
            self._first = kind
        number = self._counts[kind]
        self._counts[kind] += 1
        self._calls += 1
        if self._calls == self._look_at:
            self._look_for_a_beginning()
        return number % (_SAME_ALONE if len(self._counts) == 1 else _SAME_IN_A_ROUND)

    def _begin_round(self) -> None:
        self._counts.clear()
        self._calls = 0
        self._look_at = _SHORTEST_LOOK

    def _look_for_a_beginning(self) -> None:
        self._look_at *= 2
        repeated = [kind for kind, count in self._counts.items() if count > 2]
        if repeated and self._counts[self._first] == 1:
            self._first = min(repeated, key=lambda kind: self._counts[kind])  # of equals, the earliest
