"""Makes things equal on all ranks before training: parameters, an optimizer's state, any object."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional, Tuple, Union

import numpy as np
import torch

from .._core import _context
from .._core._objects import allgather_by, broadcast_by
from .._core._process_sets import ProcessSet, global_process_set
from .._torch_common import _device
from ._blocking import allgather, broadcast_
from ._ops import broadcast_async_, synchronize
from ._wrapper import parameters_of

Named = Tuple[Optional[str], torch.Tensor]


def broadcast_parameters(params: Union["dict[str, Any]", Iterable[Any]], root_rank: int) -> None:
    """Gives tensors the root's values, in place. All ranks have the same tensors.

    Args:
        params: model.state_dict(), model.named_parameters() or model.parameters().
        root_rank: the rank whose values all ranks get.

    Raises:
        ValueError: `params` is none of these.
        HorovodInternalError: ranks disagree, or a rank is lost.
    """
    if isinstance(params, dict):
        named: List[Named] = sorted(params.items())
    elif isinstance(params, torch.Tensor) or not hasattr(params, "__iter__"):
        raise ValueError(f"params must be a dict, or a list of tensors, not {type(params).__name__}")
    else:
        named = [(item[0], item[1]) if isinstance(item, tuple) else (None, item) for item in params]
    handles = [broadcast_async_(tensor, root_rank, name) for name, tensor in named if tensor is not None]
    for handle in handles:
        synchronize(handle)


class _Place:
    """Stands for a tensor in what is pickled."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.shape, self.dtype = tuple(tensor.shape), tensor.dtype


def _without_tensors(value: Any, tensors: List[torch.Tensor]) -> Any:
    """Returns `value` with a _Place for each tensor; the tensors are appended to `tensors`."""
    if isinstance(value, torch.Tensor) and value.layout == torch.strided:
        tensors.append(_device.quietly_on_host(value))  # other ranks have none on a device yet
        return _Place(value)
    if isinstance(value, dict):
        return {key: _without_tensors(item, tensors) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(_without_tensors(item, tensors) for item in value)
    return value


def _with_tensors(value: Any, tensors: List[torch.Tensor]) -> Any:
    """Does the reverse of _without_tensors(), with new tensors, which are appended to `tensors` in the same order."""
    if isinstance(value, _Place):
        tensors.append(torch.empty(value.shape, dtype=value.dtype))
        return tensors[-1]
    if isinstance(value, dict):
        return {key: _with_tensors(item, tensors) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(_with_tensors(item, tensors) for item in value)
    return value


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int, model: Optional[Any] = None) -> None:
    """Gives an optimizer the root's state and options. The other ranks' optimizers need no state yet. If the root's optimizer is
    new and has no state, parameters without a gradient get a gradient of zeros, as with Horovod.

    Args:
        optimizer: the optimizer.
        root_rank: the rank whose state all ranks get.
        model: not used.

    Raises:
        ValueError: the optimizer is LBFGS, as in Horovod.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("cannot broadcast torch.optim.LBFGS state; broadcast_object(optimizer.state_dict()) can")
    is_root = _context.rank() == root_rank
    tensors: List[torch.Tensor] = []
    skeleton = _without_tensors(optimizer.state_dict(), tensors) if is_root else None
    skeleton = broadcast_object(skeleton, root_rank, name="optimizer_state")
    state = None
    if not is_root:
        state = _with_tensors(skeleton, tensors)
    handles = [broadcast_async_(tensor, root_rank, f"optimizer_state.{i}") for i, tensor in enumerate(tensors)]
    for handle in handles:
        synchronize(handle)
    if state is not None:
        _load_in_place(optimizer, state)
    if not skeleton["state"]:
        for parameter in parameters_of(optimizer):
            if parameter.requires_grad and parameter.grad is None:
                zeros = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
                parameter.grad = zeros.to_sparse(1) if isinstance(optimizer, torch.optim.SparseAdam) else zeros


def _load_in_place(optimizer: torch.optim.Optimizer, state: Dict[str, Any]) -> None:
    """Does what load_state_dict() does, but keeps the objects of the groups and of the state: a scheduler that was made before
    refers to them."""
    groups, states = optimizer.param_groups, optimizer.state
    optimizer.load_state_dict(state)
    for old, new in zip(groups, optimizer.param_groups):
        old.clear()
        old.update(new)
    new_states = dict(optimizer.state)
    states.clear()
    states.update(new_states)
    optimizer.param_groups, optimizer.state = groups, states


def broadcast_object(obj: Any, root_rank: int = 0, name: Optional[str] = None,
                     process_set: ProcessSet = global_process_set) -> Any:
    """Returns the root's `obj` on every rank. It is pickled on the way (by cloudpickle, if that is installed).

    The other ranks unpickle what the root sends, which can run any code in them: as in Horovod, the ranks of a job trust each
    other.

    Args:
        obj: the object; only the root's is used.
        root_rank: the rank whose object all ranks get.
        name: the same on all ranks.
        process_set: the ranks that take part.

    Returns:
        The root's object.
    """
    return broadcast_by(lambda array, chosen: broadcast_(torch.from_numpy(array), root_rank, chosen, process_set), obj,
                        _context.rank() == root_rank, name)


def allgather_object(obj: Any, name: Optional[str] = None) -> List[Any]:
    """Returns the `obj`s of all ranks, in the order of the ranks.

    Each rank unpickles what the others send, which can run any code in it: as in Horovod, the ranks of a job trust each other.

    Args:
        obj: this rank's object, which must be picklable.
        name: the same on all ranks.

    Returns:
        A list of one object a rank.
    """
    def gather(array: np.ndarray, chosen: str) -> np.ndarray:
        gathered: np.ndarray = allgather(torch.from_numpy(array), chosen).numpy()
        return gathered

    return allgather_by(gather, obj, name)
