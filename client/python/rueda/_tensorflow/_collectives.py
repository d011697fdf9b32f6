"""Implements the collectives of Horovod's TensorFlow API, and checks what they are given.

They work eagerly, where they return when the operation has ended, and in graphs, where ops of their own run beside each other."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple, Union

import tensorflow as tf

from .._core import _operations
from .._core._dtypes import CODES
from .._core._errors import RuedaError
from .._core._operations import Adasum, Average, Sum, make_options, require_init
from .._core._process_sets import ProcessSet, global_process_set, id_of
from ..common.exceptions import horovod_error
from ..common.reductions import chosen_op
from . import _graphs, _ops
from ._compression import Compression
from ._ops import Reduction

plain = tf.autograph.experimental.do_not_convert  # these functions are Python's, also while a graph is made


def tensor_of(value: Any, what: str = "tensor") -> Any:
    """Returns a value as a tensor that can be sent to other ranks.

    Raises:
        TypeError: there is no such tensor; the text says what to do.
    """
    if isinstance(value, tf.RaggedTensor):
        raise TypeError(f"{what} is a tf.RaggedTensor, whose rows have no common shape; pass {what}.to_tensor(), or {what}.values")
    if isinstance(value, tf.SparseTensor):
        raise TypeError(f"{what} is a tf.SparseTensor, which cannot be reduced; pass tf.sparse.to_dense({what})")
    if isinstance(value, tf.IndexedSlices):
        raise TypeError(f"{what} is a tf.IndexedSlices, which only allreduce() takes; pass tf.convert_to_tensor({what})")
    if tf.executing_eagerly() and tf.is_symbolic_tensor(value):
        raise TypeError(f"{what} belongs to a graph, and the call is not made in it; call it within the tf.function, or return the tensor "
                        "from there first")
    tensor = tf.convert_to_tensor(value)
    if tensor.dtype.name not in CODES:
        raise TypeError(f"{what} is a tensor of dtype {tensor.dtype.name}, which cannot be reduced; use tf.cast to one of "
                        f"{', '.join(CODES)}")
    return tensor


def reduction_of(op: int, prescale_factor: float, postscale_factor: float, process_set: ProcessSet) -> Reduction:
    """Returns what an op is told of a reduction.

    Raises:
        ValueError: an argument is wrong, or init() has not been called.
    """
    make_options(op, prescale_factor, postscale_factor)  # raises for what is wrong
    require_init()
    return Reduction(op, float(prescale_factor), float(postscale_factor), id_of(process_set))


def _allreduce_slices(slices: Any, name: Optional[str], reduction: Reduction, process_set: ProcessSet) -> Any:
    if reduction.op not in (Sum, Average):
        raise NotImplementedError("a tf.IndexedSlices can only be reduced by Sum or Average; use sparse_as_dense=True, or "
                                  "tf.convert_to_tensor")
    values = allgather(slices.values, None if name is None else f"{name}.values", process_set=process_set)
    indices = allgather(slices.indices, None if name is None else f"{name}.indices", process_set=process_set)
    factor = reduction.prescale_factor * reduction.postscale_factor
    if reduction.op == Average:
        values = values / tf.cast(_ops.place("size", reduction.set_id), values.dtype)
    if factor != 1.0:
        values = values * tf.cast(factor, values.dtype)
    return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)


@plain
def allreduce(tensor: Any, average: Optional[bool] = None, device_dense: str = '', device_sparse: str = '',
              compression: Any = Compression.none, op: Optional[int] = None, prescale_factor: float = 1.0,
              postscale_factor: float = 1.0, name: Optional[str] = None, process_set: ProcessSet = global_process_set,
              ignore_name_scope: bool = False) -> Any:
    """Reduces `tensor` over all ranks of the set. The gradient of a sum is the sum of the gradients, and that of an average is their
    average; the other ops have none. Thread-safe.

    Args:
        tensor: a tf.Tensor or a tf.Variable of the same shape on every rank, or a tf.IndexedSlices, of which all ranks get all
            slices, added up where an index comes more than once.
        average: deprecated; True or False stand for Average or Sum.
        device_dense, device_sparse, ignore_name_scope: not used.
        compression: the Compression of the values that travel.
        op: Average (default), Sum, Min, Max, Product or Adasum. Averages of integers round towards zero.
        prescale_factor: multiplies each contribution.
        postscale_factor: multiplies the result.
        name: the same on all ranks. Without it a graph takes the tensor's name, and eager calls are counted.
        process_set: the ranks that take part.

    Returns:
        A tensor of the same shape and dtype, or a tf.IndexedSlices.

    Raises:
        TypeError, ValueError: the tensor or an argument is wrong.
        HorovodInternalError: ranks disagree, or a rank is lost. In a graph that is tf.errors.AbortedError, with the same text, when
            the graph runs.
    """
    reduction = reduction_of(chosen_op(op, average), prescale_factor, postscale_factor, process_set)
    if isinstance(tensor, tf.IndexedSlices):
        return _allreduce_slices(tensor, name, reduction, process_set)
    compressed, context = compression.compress(tensor_of(tensor))
    reduced, = _ops.allreduce([compressed], [_graphs.take_name("allreduce", name, compressed, reduction.set_id)], "", reduction)
    return compression.decompress(reduced, context)


@plain
def grouped_allreduce(tensors: Sequence[Any], average: Optional[bool] = None, device_dense: str = '', device_sparse: str = '',
                      compression: Any = Compression.none, op: Optional[int] = None, prescale_factor: float = 1.0,
                      postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
                      ignore_name_scope: bool = False, name: Optional[str] = None) -> List[Any]:
    """Reduces several tensors as one, in one op.

    Args:
        tensors: tensors as for allreduce(), whose dtypes may differ. A tf.IndexedSlices is reduced by itself.
        average, device_dense, device_sparse, compression, op, prescale_factor, postscale_factor, process_set, ignore_name_scope,
            name: as for allreduce().

    Returns:
        A list of tensors.

    Raises:
        TypeError, ValueError, HorovodInternalError: as for allreduce().
    """
    reduction = reduction_of(chosen_op(op, average), prescale_factor, postscale_factor, process_set)
    if not tensors:
        return []
    results: List[Any] = list(tensors)
    dense = [i for i, tensor in enumerate(tensors) if not isinstance(tensor, tf.IndexedSlices)]
    if dense:
        compressed, contexts = zip(*(compression.compress(tensor_of(tensors[i], f"tensors[{i}]")) for i in dense))
        group = _graphs.take_name("grouped_allreduce", name, compressed[0], reduction.set_id)
        reduced = _ops.allreduce(compressed, [f"{group}.{i}" for i in dense], group, reduction)
        for i, one, context in zip(dense, reduced, contexts):
            results[i] = compression.decompress(one, context)
    for i, tensor in enumerate(tensors):
        if isinstance(tensor, tf.IndexedSlices):
            results[i] = _allreduce_slices(tensor, None if name is None else f"{name}.{i}", reduction, process_set)
    return results


def _rows(value: Any, what: str, tensor_name: str = "tensor") -> Any:
    tensor = tensor_of(value, tensor_name)
    if tensor.shape.rank == 0:
        raise ValueError(f"{what} needs a tensor with a first dimension; pass tf.reshape(tensor, [1])")
    return tensor


@plain
def allgather(tensor: Any, name: Optional[str] = None, ignore_name_scope: bool = False,
              process_set: ProcessSet = global_process_set) -> Any:
    """Returns the `tensor`s of all ranks, one behind the other. The gradient is this rank's rows of the averaged gradient.

    Args:
        tensor: a tensor of at least one dimension. The first may differ between ranks, the others may not.
        name, process_set: as for allreduce().
        ignore_name_scope: not used.

    Returns:
        A tensor, the same on every rank.

    Raises:
        TypeError, ValueError, HorovodInternalError: as for allreduce().
    """
    tensor = _rows(tensor, "an allgather")
    require_init()
    set_id = id_of(process_set)
    return _ops.allgather(tensor, _graphs.take_name("allgather", name, tensor, set_id), set_id)[0]


@plain
def grouped_allgather(tensors: Sequence[Any], name: Optional[str] = None, ignore_name_scope: bool = False,
                      process_set: ProcessSet = global_process_set) -> List[Any]:
    """Gathers each of `tensors`.

    Args:
        tensors: tensors as for allgather().
        name, ignore_name_scope, process_set: as for allgather().

    Returns:
        A list of tensors.

    Raises:
        TypeError, ValueError, HorovodInternalError: as for allreduce().
    """
    rows = [_rows(tensor, "a grouped allgather", f"tensors[{i}]") for i, tensor in enumerate(tensors)]
    require_init()
    set_id = id_of(process_set)
    if not rows:
        return []
    group = _graphs.take_name("grouped_allgather", name, rows[0], set_id)
    return [_ops.allgather(tensor, f"{group}.{i}", set_id)[0] for i, tensor in enumerate(rows)]


@plain
def broadcast(tensor: Any, root_rank: int, name: Optional[str] = None, ignore_name_scope: bool = False,
              process_set: ProcessSet = global_process_set) -> Any:
    """Returns the root's `tensor` on every rank. The gradient is the average of the gradients on the root, and zeros elsewhere.

    Args:
        tensor: a tensor of the same shape and dtype on every rank.
        root_rank: the rank whose values all ranks get.
        name, process_set: as for allreduce().
        ignore_name_scope: not used.

    Returns:
        A tensor.

    Raises:
        TypeError, ValueError, HorovodInternalError: as for allreduce().
    """
    tensor = tensor_of(tensor)
    require_init()
    _operations.is_root(root_rank)  # raises for what is no rank
    set_id = id_of(process_set)
    received, = _ops.broadcast([tensor], [_graphs.take_name("broadcast", name, tensor, set_id)], root_rank, set_id)
    return received


@plain
def alltoall(tensor: Any, splits: Optional[Any] = None, name: Optional[str] = None, ignore_name_scope: bool = False,
             process_set: ProcessSet = global_process_set) -> Union[Any, Tuple[Any, Any]]:
    """Sends each rank its part of `tensor`'s rows, and returns what all ranks sent to this one, one behind the other.

    Args:
        tensor: a tensor of at least one dimension.
        splits: the numbers of rows that go to each rank of the set (integers); None means equal parts.
        name, process_set: as for allreduce().
        ignore_name_scope: not used.

    Returns:
        A tensor; with `splits`, also the numbers of rows that each rank sent, as int32.

    Raises:
        TypeError, ValueError, HorovodInternalError: as for allreduce().
        tf.errors.InvalidArgumentError: the rows cannot be cut like that.
    """
    tensor = _rows(tensor, "an alltoall")
    require_init()
    set_id = id_of(process_set)
    if splits is None:
        parts = _ops.no_rows()
    else:
        given = tf.convert_to_tensor(splits)
        if not given.dtype.is_integer:
            raise ValueError(f"splits must be integers, not {given.dtype.name}")
        parts = tf.reshape(tf.cast(given, tf.int64), [-1])
    received, received_splits = _ops.alltoall(tensor, parts, _graphs.take_name("alltoall", name, tensor, set_id), set_id)
    return received if splits is None else (received, tf.cast(received_splits, tf.int32))


@plain
def reducescatter(tensor: Any, device_dense: str = '', compression: Any = Compression.none, op: int = Average,
                  name: Optional[str] = None, process_set: ProcessSet = global_process_set, ignore_name_scope: bool = False,
                  prescale_factor: float = 1.0, postscale_factor: float = 1.0) -> Any:
    """Returns this rank's part of the reduction of all `tensor`s. Parts are as even as can be; the first ranks have one row more.

    Args:
        tensor: a tensor of at least one dimension, of the same shape on every rank.
        device_dense, ignore_name_scope: not used.
        compression, op, name, process_set, prescale_factor, postscale_factor: as for allreduce(). There is no Adasum.

    Returns:
        A tensor.

    Raises:
        TypeError, ValueError, HorovodInternalError: as for allreduce().
    """
    if op == Adasum:
        raise ValueError("a reducescatter cannot be an Adasum; use allreduce")
    reduction = reduction_of(op, prescale_factor, postscale_factor, process_set)
    compressed, context = compression.compress(_rows(tensor, "a reducescatter"))
    name = _graphs.take_name("reducescatter", name, compressed, reduction.set_id)
    return compression.decompress(_ops.reducescatter(compressed, _ops.no_rows(), name, reduction), context)


@plain
def grouped_reducescatter(tensors: Sequence[Any], device_dense: str = '', compression: Any = Compression.none, op: int = Average,
                          process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                          postscale_factor: float = 1.0) -> List[Any]:
    """Reduces and scatters each of `tensors`.

    Args:
        tensors: tensors as for reducescatter().
        device_dense, compression, op, process_set, prescale_factor, postscale_factor: as for reducescatter().

    Returns:
        A list of tensors.

    Raises:
        TypeError, ValueError, HorovodInternalError: as for allreduce().
    """
    return [reducescatter(tensor, device_dense, compression, op, None, process_set, False, prescale_factor, postscale_factor)
            for tensor in tensors]


@plain
def join() -> int:
    """Says that this rank has no more data: until all ranks have joined it contributes zeros. It is called outside of graphs.

    Returns:
        The rank that joined last.

    Raises:
        HorovodInternalError: a rank is lost.
        RuntimeError: a graph is being made.
    """
    if not tf.executing_eagerly():
        raise RuntimeError("join() waits for all ranks, and a graph that is being made cannot; call it outside of tf.function")
    try:
        return _operations.join()
    except RuedaError as error:
        raise horovod_error(error) from None


@plain
def barrier(process_set: ProcessSet = global_process_set) -> Any:
    """Ends when every rank of the set has called it. In a graph it is an op that runs after the stateful ones before it.

    Args:
        process_set: the ranks that take part.

    Raises:
        HorovodInternalError: a rank is lost.
    """
    require_init()
    return _ops.barrier("barrier", id_of(process_set))


def rank_op(name: Optional[str] = None) -> Any:
    """Returns this process's rank as a scalar of int32. In a graph it is asked for whenever the graph runs, for elastic jobs."""
    return _ops.place("rank")


def local_rank_op(name: Optional[str] = None) -> Any:
    """Returns this process's number on its node, as rank_op() does."""
    return _ops.place("local_rank")


def size_op(process_set_id: int = 0, name: Optional[str] = None) -> Any:
    """Returns the number of the ranks of a process set, as rank_op() does."""
    return _ops.place("size", process_set_id)


def local_size_op(name: Optional[str] = None) -> Any:
    """Returns the number of the ranks on this node, as rank_op() does."""
    return _ops.place("local_size")


def process_set_included_op(process_set_id: int = 0, name: Optional[str] = None) -> Any:
    """Returns 1 if this rank is in the process set, and otherwise 0, as rank_op() does."""
    return _ops.place("included", process_set_id)
