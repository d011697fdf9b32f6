"""Lets torch.distributed.split_group() make groups of Rueda's."""

from __future__ import annotations

import torch.distributed as dist


def install() -> None:
    """Says to PyTorch, where it has a recorder of collectives, that it need not record Rueda's. It would record those of a group that
    split_group() has just made, and fails for groups of Python's. new_group() sees for itself that it cannot."""
    recorded = getattr(dist.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", None)
    if recorded is not None:
        recorded.add("rueda")
