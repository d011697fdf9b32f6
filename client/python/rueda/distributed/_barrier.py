"""Implements a barrier that says who is missing."""

from __future__ import annotations

import time
from typing import Any, List

import torch

# The tag differs from those of programs, which are 0 and more.
_TAG = -1


def pass_monitored(group: Any, ranks: List[int], seconds: float, wait_all_ranks: bool) -> None:
    """Makes all ranks of a group wait for each other; see rueda.distributed.monitored_barrier(). `ranks` has the job's ranks, by
    their places in the group. The texts of errors are Gloo's."""
    if group.rank() == 0:
        _wait_for_all(group, ranks, seconds, wait_all_ranks)
        return
    token = torch.zeros(1, dtype=torch.uint8)
    arrival, answer = group.tell(token, 0, _TAG), group.hear(token, 0, _TAG)
    is_answered = answer.wait(2 * seconds)
    if is_answered and answer.error is None and not token[0]:
        return
    for part in (arrival, answer):
        part.cancel()
    raise RuntimeError(f"Rank {ranks[group.rank()]} successfully reached monitoredBarrier, but received errors while "
                       f"waiting for send/recv from rank {ranks[0]}, which " +
                       ("names the ranks that have not come" if is_answered else
                        f"has not answered within {2 * seconds:g} s"))


def _wait_for_all(group: Any, ranks: List[int], seconds: float, wait_all_ranks: bool) -> None:
    deadline = time.monotonic() + seconds
    arriving = [group.hear(torch.zeros(1, dtype=torch.uint8), place, _TAG) for place in range(1, group.size())]
    missing: List[int] = []
    for place, arrival in enumerate(arriving, start=1):
        has_come = arrival.wait(max(0.0, deadline - time.monotonic()))
        if not has_come or arrival.error is not None:
            missing.append(place)
            if not wait_all_ranks:
                break
    for arrival in arriving:
        arrival.cancel()
    answer = torch.tensor([1 if missing else 0], dtype=torch.uint8)
    for place in range(1, group.size()):
        told = group.tell(answer, place, _TAG)
        if place in missing or not told.wait(max(seconds, 1.0)):
            told.cancel()
    if missing:
        names = ", ".join(str(ranks[place]) for place in missing)
        raise RuntimeError(f"Rank {ranks[0]} timed out in monitoredBarrier: Rank{'s' if len(missing) > 1 else ''} {names} "
                           f"failed to pass monitoredBarrier in {seconds:g} s" +
                           ("" if wait_all_ranks else "; wait_all_ranks=True names all that are missing"))
