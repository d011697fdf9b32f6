"""Declares what a training step reduces before the first one, so that not even that sends a message about order (decisions 16 and
75). The order is that in which the backward graph computes gradients (_graph.py)."""

from __future__ import annotations

import functools
import logging
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Protocol, Sequence

import torch

from .._core import _plans
from .._core._errors import RuedaError
from .._core._library import ReduceOptions, Tensor
from ._graph import Walk, walk

# So much is reduced together, as in PyTorch's DistributedDataParallel. All gradients of a step may share an operation, as far as the
# graph is concerned, and the first would then wait for the last.
BATCH_BYTES = 25 << 20

_log = logging.getLogger("rueda.torch")


class Description(NamedTuple):
    """Describes how one gradient, or a group of them, will be submitted.

    Attributes:
        tensors: their names, shapes and dtypes, without memory.
        group: the name of the group, or None for a gradient by itself.
        bytes: the size of all of them.
        is_on_device: they are in a GPU's memory.
    """

    tensors: List[Tensor]
    options: ReduceOptions
    group: Optional[str]
    bytes: int
    is_on_device: bool


class Declaring(Protocol):
    """Something that declares its plan when its first gradient is there."""

    def is_to_declare(self) -> bool:
        """Returns whether it will declare one, and it is of use to know the graph."""

    def has_any(self, leaves: Sequence[torch.Tensor]) -> bool:
        """Returns whether it reduces the gradient of any of these parameters."""

    graph: Optional[Walk]


def places_of(leaves: Sequence[torch.Tensor]) -> Dict[int, int]:
    """Returns the place of each tensor in the list, by its id()."""
    return {id(leaf): place for place, leaf in enumerate(leaves)}


def declare(described: Optional[Sequence[Description]]) -> None:
    """Declares the plan of what is described, in that order. Every rank makes this call; one that knows no plan gives None. A plan that
    is not agreed on is no error: the schedule is learned."""
    planned: List[_plans.Planned] = []
    before: List[int] = []  # the places of the tensors of the batch before
    batch: List[int] = []
    batch_bytes = 0
    for item in described or ():
        if batch and batch_bytes + item.bytes > BATCH_BYTES:
            before, batch, batch_bytes = batch, [], 0
        # What comes after all of the batch before shares no operation with it, and neither does what is listed later.
        after = [] if batch else before
        batch += range(len(planned), len(planned) + len(item.tensors))
        batch_bytes += item.bytes
        planned += [_plans.Planned(tensor, item.options, item.group, after, item.is_on_device) for tensor in item.tensors]
    try:
        _plans.declare(planned)
    except RuedaError as error:
        _log.info("no plan was declared: %s", error)


def look_before_backward(declaring: Iterable[Declaring]) -> None:
    """Puts a function before torch.autograd.backward, which Tensor.backward calls: it walks the graph for those that are to declare
    a plan. PyTorch tells nobody else which tensors backward() begins with."""
    backward = torch.autograd.backward
    if not hasattr(backward, "looks_first"):
        torch.autograd.backward = _looking_first(backward, declaring)


def _looking_first(backward: Callable[..., Any], declaring: Iterable[Declaring]) -> Callable[..., Any]:
    @functools.wraps(backward)
    def look_first(*arguments: Any, **named: Any) -> Any:
        waiting = [one for one in list(declaring) if one.is_to_declare()]
        if waiting:
            roots = arguments[0] if arguments else named.get("tensors", ())
            graph = walk([roots] if isinstance(roots, torch.Tensor) else roots)
            for one in waiting:
                if one.has_any(graph.leaves):
                    one.graph = graph
        return backward(*arguments, **named)

    look_first.looks_first = True  # type: ignore[attr-defined]
    return look_first
