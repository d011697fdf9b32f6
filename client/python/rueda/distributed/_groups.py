"""Groups as callers name them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Optional

import torch.distributed as dist

from ._backend import ProcessGroupRueda


def group_of(state: Any) -> ProcessGroupRueda:
    """The group that was given, or None, stands for. TypeError: it is of another backend."""
    group = dist.group.WORLD if state is None else state
    if not isinstance(group, ProcessGroupRueda):
        raise TypeError(f"a process group of the backend \"rueda\" is needed, not {type(group).__name__}; pass the one that "
                        "DDP was given as the hook's state")
    return group


def monitored_barrier(group: Any = None, timeout: Optional[timedelta] = None, wait_all_ranks: bool = False) -> None:
    """torch.distributed.monitored_barrier, which PyTorch itself allows to Gloo alone: all ranks of the group wait for
    each other. RuntimeError on the group's first rank names the one that has not come within `timeout` (None: the
    group's); with wait_all_ranks, all of them. The others get one as well, then. Ranks that are not in it return at once."""
    if group is not None and group == dist.GroupMember.NON_GROUP_MEMBER:
        return
    group_of(group).monitored_barrier(timeout, wait_all_ranks)
