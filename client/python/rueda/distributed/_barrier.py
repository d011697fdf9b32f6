"""A barrier that says who is missing."""

from __future__ import annotations

import time
from typing import Any, List

import torch

# Apart from what programs send: their tags are 0 and more.
_TAG = -1


def pass_monitored(chosen: Any, seconds: float, wait_all_ranks: bool) -> None:
    """All ranks of a group wait for each other; see rueda.distributed.monitored_barrier."""
    token = torch.zeros(1, dtype=torch.uint8)
    if chosen.rank() != 0:
        chosen.send([token], 0, _TAG)
        came = chosen.recv([token], 0, _TAG)
        if not came.operation.wait(2 * seconds):
            came.operation.cancel()
            raise RuntimeError(f"Rank 0 timed out in monitoredBarrier: it has not answered within {2 * seconds:g} s")
        came.wait()
        if token[0]:
            raise RuntimeError("monitoredBarrier: not all ranks have come; rank 0 of the group names them")
        return
    missing = _missing(chosen, seconds, wait_all_ranks)
    token[0] = 1 if missing else 0
    for rank in range(1, chosen.size()):
        if rank not in missing:
            chosen.send([token], rank, _TAG).wait()
    if missing:
        raise RuntimeError(f"{_ranks(missing)} failed to pass monitoredBarrier in {seconds:g} s"
                           + ("" if wait_all_ranks else "; wait_all_ranks=True names all that are missing"))


def _missing(group: Any, seconds: float, waits_for_all: bool) -> List[int]:
    deadline = time.monotonic() + seconds
    arriving = [group.recv([torch.zeros(1, dtype=torch.uint8)], rank, _TAG) for rank in range(1, group.size())]
    missing = []
    for rank, came in enumerate(arriving, start=1):
        if not came.operation.wait(max(0.0, deadline - time.monotonic())):
            missing.append(rank)
            if not waits_for_all:
                break
    for came in arriving:
        came.operation.cancel()
    return missing


def _ranks(ranks: List[int]) -> str:
    return ("Rank " if len(ranks) == 1 else "Ranks ") + ", ".join(map(str, ranks))
