"""Implements collectives that wait for their result, and pass gradients on where there are any.

Gradients follow Horovod: the losses of ranks count as averaged, except for allreduce and alltoall, whose gradients are those of
the sum of all losses."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple, Union

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .._core import _context, _parts
from .._core._operations import Average, Sum, require_init
from .._core._process_sets import ProcessSet, global_process_set, id_of
from .._torch_common._tensors import check_tensor
from . import _ops
from ._compression import Compression
from ._names import remember, take_name
from ._ops import synchronize
from ._reductions import chosen_op


def _gradient_name(name: Optional[str]) -> Optional[str]:
    return None if name is None else f"{name}.gradient"


def _require_linear(op: int) -> None:
    if op not in (Sum, Average):
        raise NotImplementedError("only Sum and Average pass gradients on; use tensor.detach() with the other ops")


class _Allreduce(Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, name: Optional[str], op: int, prescale_factor: float,
                postscale_factor: float, process_set: ProcessSet) -> Any:
        ctx.asked = (op, prescale_factor, postscale_factor, process_set)
        ctx.name = _gradient_name(name)
        return synchronize(_ops.allreduce_async(tensor, None, name, *ctx.asked))

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> Any:  # type: ignore[override]
        _require_linear(ctx.asked[0])
        return (_Allreduce.apply(grad_output, ctx.name, *ctx.asked), *[None] * 5)


def allreduce(tensor: torch.Tensor, average: Optional[bool] = None, name: Optional[str] = None,
              compression: Any = Compression.none, op: Optional[int] = None, prescale_factor: float = 1.0,
              postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """Reduces `tensor` over all ranks of the set into a new tensor. The gradient of a sum is the sum of the gradients, and that
    of an average is their average.

    Args:
        tensor, average, name, op, prescale_factor, postscale_factor, process_set: as for allreduce_async().
        compression: the Compression of the values that travel.

    Returns:
        The new tensor.

    Raises:
        ValueError: the tensor or an argument is wrong.
        HorovodInternalError: ranks disagree, or a rank is lost.
    """
    chosen = chosen_op(op, average)
    check_tensor(tensor)
    compressed, context = compression.compress(tensor)
    reduced = _Allreduce.apply(compressed, name, chosen, prescale_factor, postscale_factor, process_set)
    return compression.decompress(reduced, context)


def allreduce_(tensor: torch.Tensor, average: Optional[bool] = None, name: Optional[str] = None,
               op: Optional[int] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
               process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """Reduces `tensor` over all ranks of the set in place, without gradients.

    Args:
        tensor, average, name, op, prescale_factor, postscale_factor, process_set: as for allreduce_async().

    Returns:
        `tensor`.

    Raises:
        ValueError, HorovodInternalError: as for allreduce().
    """
    return synchronize(_ops.allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor,
                                             process_set))


class _GroupedAllreduce(Function):
    @staticmethod
    def forward(ctx: Any, name: Optional[str], op: int, prescale_factor: float, postscale_factor: float,
                process_set: ProcessSet, *tensors: torch.Tensor) -> Any:
        ctx.asked = (op, prescale_factor, postscale_factor, process_set)
        ctx.name = _gradient_name(name)
        return tuple(synchronize(_ops.grouped_allreduce_async(tensors, None, name, *ctx.asked)))

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> Any:  # type: ignore[override]
        _require_linear(ctx.asked[0])
        return (*[None] * 5, *_GroupedAllreduce.apply(ctx.name, *ctx.asked, *grad_outputs))


def grouped_allreduce(tensors: Sequence[torch.Tensor], average: Optional[bool] = None, name: Optional[str] = None,
                      compression: Any = Compression.none, op: Optional[int] = None, prescale_factor: float = 1.0,
                      postscale_factor: float = 1.0,
                      process_set: ProcessSet = global_process_set) -> List[torch.Tensor]:
    """Reduces several tensors as one.

    Args:
        tensors: tensors as for allreduce().
        average, name, compression, op, prescale_factor, postscale_factor, process_set: as for allreduce().

    Returns:
        A list of new tensors.

    Raises:
        ValueError, HorovodInternalError: as for allreduce().
    """
    chosen = chosen_op(op, average)
    for i, tensor in enumerate(tensors):
        check_tensor(tensor, f"tensors[{i}]")
    compressed, contexts = [], []
    for tensor in tensors:
        smaller, context = compression.compress(tensor)
        compressed.append(smaller)
        contexts.append(context)
    reduced = _GroupedAllreduce.apply(name, chosen, prescale_factor, postscale_factor, process_set, *compressed)
    return [compression.decompress(tensor, context) for tensor, context in zip(reduced, contexts)]


def grouped_allreduce_(tensors: Sequence[torch.Tensor], average: Optional[bool] = None, name: Optional[str] = None,
                       op: Optional[int] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                       process_set: ProcessSet = global_process_set) -> List[torch.Tensor]:
    """Reduces several tensors as one, in place and without gradients.

    Args:
        tensors: tensors as for allreduce_().
        average, name, op, prescale_factor, postscale_factor, process_set: as for allreduce_().

    Returns:
        The tensors.

    Raises:
        ValueError, HorovodInternalError: as for allreduce().
    """
    reduced: List[torch.Tensor] = synchronize(_ops.grouped_allreduce_async_(
        tensors, average, name, op, prescale_factor, postscale_factor, process_set))
    return reduced


def _own_rows_averaged(gradient: torch.Tensor, rows_of: List[int], process_set: ProcessSet) -> torch.Tensor:
    set_id = id_of(process_set)
    name = take_name("reducescatter", None, set_id)
    handle = _ops.begin_reducescatter(gradient, name, Average, 1.0, 1.0, set_id, rows_of)
    return synchronize(remember(None, name, set_id, handle))


class _Allgather(Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, name: Optional[str], process_set: ProcessSet) -> Any:
        require_init()
        set_id = id_of(process_set)
        ctx.process_set = process_set
        chosen = take_name("allgather", name, set_id)
        handle = _ops.begin_allgather(tensor, chosen, set_id, with_rows=True)
        gathered, ctx.rows_of = synchronize(remember(name, chosen, set_id, handle))
        return gathered

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: torch.Tensor) -> Any:  # type: ignore[override]
        return _own_rows_averaged(grad_output, ctx.rows_of, ctx.process_set), None, None


def allgather(tensor: torch.Tensor, name: Optional[str] = None,
              process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """Returns the `tensor`s of all ranks, one behind the other.

    Args:
        tensor, name, process_set: as for allgather_async().

    Returns:
        The new tensor, the same on every rank.

    Raises:
        ValueError, HorovodInternalError: as for allreduce().
    """
    return _Allgather.apply(tensor, name, process_set)


class _GroupedAllgather(Function):
    @staticmethod
    def forward(ctx: Any, name: Optional[str], process_set: ProcessSet, *tensors: torch.Tensor) -> Any:
        ctx.process_set = process_set
        ctx.rows = [tensor.shape[0] for tensor in tensors]
        return tuple(synchronize(_ops.grouped_allgather_async(tensors, name, process_set)))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> Any:  # type: ignore[override]
        _, size = _parts.place_in(id_of(ctx.process_set))
        rows = allgather(torch.tensor(ctx.rows), process_set=ctx.process_set).view(size, -1)
        gradients = [_own_rows_averaged(gradient, rows[:, i].tolist(), ctx.process_set)
                     for i, gradient in enumerate(grad_outputs)]
        return (None, None, *gradients)


def grouped_allgather(tensors: Sequence[torch.Tensor], name: Optional[str] = None,
                      process_set: ProcessSet = global_process_set) -> List[torch.Tensor]:
    """Gathers each of `tensors` from all ranks.

    Args:
        tensors: tensors as for allgather().
        name, process_set: as for allgather().

    Returns:
        A list of new tensors.

    Raises:
        ValueError, HorovodInternalError: as for allreduce().
    """
    return list(_GroupedAllgather.apply(name, process_set, *tensors))


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, root_rank: int, name: Optional[str], process_set: ProcessSet) -> Any:
        ctx.root_rank, ctx.process_set, ctx.name = root_rank, process_set, _gradient_name(name)
        return synchronize(_ops.broadcast_async(tensor, root_rank, name, process_set))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: torch.Tensor) -> Any:  # type: ignore[override]
        averaged = allreduce(grad_output, name=ctx.name, process_set=ctx.process_set)
        return averaged if _context.rank() == ctx.root_rank else torch.zeros_like(averaged), None, None, None


def broadcast(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None,
              process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """Returns the root's `tensor` as a new tensor on every rank.

    Args:
        tensor, root_rank, name, process_set: as for broadcast_async().

    Returns:
        The new tensor.

    Raises:
        ValueError, HorovodInternalError: as for allreduce().
    """
    return _Broadcast.apply(tensor, root_rank, name, process_set)


def broadcast_(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None,
               process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """Gives `tensor` the root's values on every rank, in place and without gradients.

    Args:
        tensor, root_rank, name, process_set: as for broadcast_async().

    Returns:
        `tensor`.

    Raises:
        ValueError, HorovodInternalError: as for allreduce().
    """
    return synchronize(_ops.broadcast_async_(tensor, root_rank, name, process_set))


class _Alltoall(Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, splits: Optional[Any], name: Optional[str],
                process_set: ProcessSet) -> Any:
        require_init()
        check_tensor(tensor)
        if splits is None and tensor.dim() > 0:
            _, size = _parts.place_in(id_of(process_set))
            if tensor.shape[0] % size == 0:
                splits = [tensor.shape[0] // size] * size
        received = synchronize(_ops.alltoall_async(tensor, splits, name, process_set))
        ctx.rows, ctx.process_set, ctx.name = tensor.shape[0], process_set, _gradient_name(name)
        ctx.received = received[1]
        ctx.mark_non_differentiable(received[1])
        return received

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor, _: Any) -> Any:  # type: ignore[override]
        sent, _splits = _Alltoall.apply(grad_output, ctx.received, ctx.name, ctx.process_set)
        unsent = sent.new_zeros((ctx.rows - sent.shape[0], *sent.shape[1:]))
        return (torch.cat([sent, unsent]) if len(unsent) else sent), None, None, None


def alltoall(tensor: torch.Tensor, splits: Optional[Any] = None, name: Optional[str] = None,
             process_set: ProcessSet = global_process_set) -> Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]:
    """Returns what all ranks sent to this one, one behind the other.

    Args:
        tensor, splits, name, process_set: as for alltoall_async().

    Returns:
        The new tensor; with `splits`, also the numbers of rows that each rank sent.

    Raises:
        ValueError, HorovodInternalError: as for allreduce().
    """
    received, received_splits = _Alltoall.apply(tensor, splits, name, process_set)
    return received if splits is None else (received, received_splits)


def _gradient_of_reducescatter(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
    _, size = _parts.place_in(id_of(ctx.process_set))
    return gradient * (ctx.factor * (size if ctx.op == Sum else 1))


class _Reducescatter(Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, name: Optional[str], op: int, process_set: ProcessSet,
                prescale_factor: float, postscale_factor: float) -> Any:
        ctx.op, ctx.process_set, ctx.factor = op, process_set, prescale_factor * postscale_factor
        ctx.name = _gradient_name(name)
        return synchronize(_ops.reducescatter_async(tensor, name, op, process_set, prescale_factor,
                                                    postscale_factor))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: torch.Tensor) -> Any:  # type: ignore[override]
        _require_linear(ctx.op)
        gradient = _gradient_of_reducescatter(ctx, grad_output)
        return (allgather(gradient, ctx.name, ctx.process_set), *[None] * 5)


def reducescatter(tensor: torch.Tensor, name: Optional[str] = None, compression: Any = Compression.none,
                  op: int = Average, process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                  postscale_factor: float = 1.0) -> torch.Tensor:
    """Returns this rank's part of the reduction of all `tensor`s.

    Args:
        tensor, name, op, process_set, prescale_factor, postscale_factor: as for reducescatter_async().
        compression: the Compression of the values that travel.

    Returns:
        This rank's part, as a new tensor.

    Raises:
        ValueError, HorovodInternalError: as for allreduce().
    """
    check_tensor(tensor)
    compressed, context = compression.compress(tensor)
    part = _Reducescatter.apply(compressed, name, op, process_set, prescale_factor, postscale_factor)
    return compression.decompress(part, context)


class _GroupedReducescatter(Function):
    @staticmethod
    def forward(ctx: Any, name: Optional[str], op: int, process_set: ProcessSet, prescale_factor: float,
                postscale_factor: float, *tensors: torch.Tensor) -> Any:
        ctx.op, ctx.process_set, ctx.factor = op, process_set, prescale_factor * postscale_factor
        ctx.name = _gradient_name(name)
        return tuple(synchronize(_ops.grouped_reducescatter_async(tensors, name, op, process_set, prescale_factor,
                                                                  postscale_factor)))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> Any:  # type: ignore[override]
        _require_linear(ctx.op)
        gradients = [_gradient_of_reducescatter(ctx, gradient) for gradient in grad_outputs]
        return (*[None] * 5, *grouped_allgather(gradients, ctx.name, ctx.process_set))


def grouped_reducescatter(tensors: Sequence[torch.Tensor], name: Optional[str] = None,
                          compression: Any = Compression.none, op: int = Average,
                          process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                          postscale_factor: float = 1.0) -> List[torch.Tensor]:
    """Reduces and scatters each of `tensors`.

    Args:
        tensors: tensors as for reducescatter().
        name, compression, op, process_set, prescale_factor, postscale_factor: as for reducescatter().

    Returns:
        A list of new tensors.

    Raises:
        ValueError, HorovodInternalError: as for allreduce().
    """
    compressed, contexts = [], []
    for i, tensor in enumerate(tensors):
        check_tensor(tensor, f"tensors[{i}]")
        smaller, context = compression.compress(tensor)
        compressed.append(smaller)
        contexts.append(context)
    parts = _GroupedReducescatter.apply(name, op, process_set, prescale_factor, postscale_factor, *compressed)
    return [compression.decompress(part, context) for part, context in zip(parts, contexts)]
