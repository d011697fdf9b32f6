"""Defines what all sides have in common."""

import json

from ..processes import CompareError


class Side:
    """A program that can do the work: it checks its results, and all its processes count."""

    name = ""
    # Rueda's own sides are told apart from peers; the floor is neither.
    kind = "peer"

    def missing(self, work, network):
        """Returns why the side cannot take part, with the remedy where there is one, or None."""
        raise NotImplementedError

    def measure(self, work, network):
        """Returns one dict a size, with rueda-bench's keys."""
        raise NotImplementedError


def parse_results(text, sizes, name):
    results = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    if [result["bytes"] for result in results] != sizes:
        raise CompareError(f"{name} reported {[r['bytes'] for r in results]} bytes, not {sizes}")
    for result in results:
        if result["wrong"] != 0:
            raise CompareError(f"{name}: {result['wrong']} wrong elements at {result['bytes']} bytes")
    return results
