"""Finds the groups that callers name."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Optional

import torch.distributed as dist

from ._backend import ProcessGroupRueda


def group_of(state: Any) -> ProcessGroupRueda:
    """Returns the group that was given, or that None stands for.

    Raises:
        TypeError: the group is of another backend.
    """
    group = dist.group.WORLD if state is None else state
    if not isinstance(group, ProcessGroupRueda):
        raise TypeError(f"a process group of the backend \"rueda\" is needed, not {type(group).__name__}; pass the one that "
                        "DDP was given as the hook's state")
    return group


def monitored_barrier(group: Any = None, timeout: Optional[timedelta] = None, wait_all_ranks: bool = False) -> None:
    """Makes all ranks of the group wait for each other, as torch.distributed.monitored_barrier does, which PyTorch itself allows
    to Gloo alone. Ranks that are not in the group return at once.

    Args:
        group: the group; None means that of all ranks.
        timeout: the time to wait; None means the group's timeout.
        wait_all_ranks: if True, the error names all ranks that have not come, and not only the first.

    Raises:
        RuntimeError: a rank has not come in time. The error on the group's first rank names it; the other ranks get an error,
            too.
        TypeError: the group is of another backend.
    """
    if group is not None and group == dist.GroupMember.NON_GROUP_MEMBER:
        return
    group_of(group).monitored_barrier(timeout, wait_all_ranks)
