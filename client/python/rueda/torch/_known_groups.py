"""Knows groups that come again, step after step, in the same memory: what librueda is told of them is put together once. For a
thousand small tensors that is most of the time which Python takes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import torch

_MOST = 64  # groups; the one that was used least recently goes

Key = Tuple[str, int]  # the name and the process set
# Says where the tensors' elements are, and their types. Groups of equal descriptions are told to librueda in the same words.
Description = Tuple[List[int], List[torch.Size], List[torch.dtype], List[Tuple[int, ...]]]


class _Known(NamedTuple):
    description: Description
    told: Any  # an array of rueda_tensor
    memory: Any  # the memory that `told` points to, except the tensors' own


_groups: "OrderedDict[Key, _Known]" = OrderedDict()


def reset() -> None:
    """Forgets all groups. It is called by init()."""
    _groups.clear()


def description_of(tensors: Sequence[Any]) -> Optional[Description]:
    """Returns the description of the tensors, or None if one of them is no tensor that has memory, or has elements that differ
    from those in its memory."""
    try:
        if any(tensor.is_neg() for tensor in tensors):
            return None
        return ([tensor.data_ptr() for tensor in tensors], [tensor.shape for tensor in tensors],
                [tensor.dtype for tensor in tensors], [tensor.stride() for tensor in tensors])
    except (AttributeError, RuntimeError):
        return None


def find(key: Key, description: Optional[Description]) -> Any:
    """Returns what librueda was told of a group of this name whose tensors have this description, or None if that is not known.
    """
    known = _groups.get(key)
    if known is None or known.description != description:
        return None
    _groups.move_to_end(key)
    return known.told


def remember(key: Key, description: Description, told: Any, memory: Any) -> None:
    """Remembers a group that is reduced in place, each tensor of which is contiguous."""
    _groups[key] = _Known(description, told, memory)
    _groups.move_to_end(key)
    if len(_groups) > _MOST:
        _groups.popitem(last=False)
