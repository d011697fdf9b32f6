"""Declares plans: a training step is described before there has been one."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, NamedTuple, Optional, Sequence

from . import _library
from ._dtypes import as_array, code_of
from ._library import PlannedTensor as _CPlanned
from ._library import ReduceOptions, Tensor, check, pointer
from ._operations import Average, make_options, name_for, require_init


class PlannedTensor(NamedTuple):
    """Describes a tensor that every step reduces by an allreduce.

    name, op, the factors, dtype and wire_dtype are those with which it will be submitted.

    Attributes:
        like: an array of the tensor's shape and dtype; its values are not looked at.
        after: the names of the tensors that this one is computed from, once they are reduced.
        group: the name of its grouped allreduce; the tensors of a group follow each other.
    """

    name: str
    like: Any
    after: "Sequence[str]" = ()
    group: Optional[str] = None
    op: int = Average
    prescale_factor: float = 1.0
    postscale_factor: float = 1.0
    dtype: Optional[str] = None
    wire_dtype: Optional[str] = None


class Planned(NamedTuple):
    """Describes a tensor of a plan as librueda is told of it.

    Attributes:
        tensor: its name, shape and dtype; it has no memory.
        after: the places of the tensors that it comes after.
        is_on_device: it will be submitted from a GPU's memory.
    """

    tensor: Tensor
    options: ReduceOptions
    group: Optional[str]
    after: Sequence[int]
    is_on_device: bool = False


def declare(planned: Sequence[Planned]) -> None:
    """Declares the plan. With an empty one, this rank says that it has none (see rueda_plan_declare).

    Raises:
        RuedaError: ranks declared different plans, or the plan is impossible.
    """
    items = (_CPlanned * max(len(planned), 1))()
    for item, one in zip(items, planned):
        item.tensor = one.tensor
        item.options = pointer(one.options)
        item.group_name = None if one.group is None else one.group.encode()
        item.after = (ctypes.c_uint32 * max(len(one.after), 1))(*one.after)
        item.after_count = len(one.after)
        item.is_on_device = int(one.is_on_device)
    check(_library.load().rueda_plan_declare(items, len(planned)))


def declare_plan(tensors: Sequence[PlannedTensor]) -> None:
    """Declares all allreduces of a step, in the order in which they are expected to be ready, so that not even the first step
    sends a message about order.

    Every rank of the job calls it, with the same list, before its first step or between two steps, and waits for all others. A
    rank that has no plan where others may have one gives an empty list.
    Tensors that do not come after one another may share an operation; others never do. A plan that turns out wrong does no harm:
    the daemons say so in their logs, and learn the schedule.

    Args:
        tensors: the PlannedTensors of a step.

    Raises:
        ValueError: a tensor is listed twice, or comes after one that is not listed before it.
        RuedaError: ranks declared different plans (the text names both), or the plan is impossible.
    """
    require_init()
    planned = []
    places: Dict[str, int] = {}
    for place, tensor in enumerate(tensors):
        array = as_array(tensor.like)
        after = []
        for before in tensor.after:
            if before not in places:
                raise ValueError(f"tensor {tensor.name!r} comes after {before!r}, which is not listed before it")
            after.append(places[before])
        if tensor.name in places:
            raise ValueError(f"tensor {tensor.name!r} is listed twice")
        places[name_for("allreduce", tensor.name)] = place
        shape = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
        options = make_options(tensor.op, tensor.prescale_factor, tensor.postscale_factor, wire_dtype=tensor.wire_dtype)
        planned.append(Planned(Tensor(tensor.name.encode(), None, None, shape, array.ndim, code_of(array, tensor.dtype), 0),
                               options, tensor.group, after))
    declare(planned)
