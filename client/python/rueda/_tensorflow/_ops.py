"""Calls the ops of librueda_tensorflow.so, and gives them gradients. Every function works eagerly and in graphs, and takes what its
callers have checked.

Gradients follow Horovod: the losses of ranks count as averaged, except for allreduce and alltoall, whose gradients are those of
the sum of all losses."""

from __future__ import annotations

import struct
from typing import Any, List, NamedTuple, Sequence, Tuple

import tensorflow as tf

from .._core._operations import Average, Sum
from ..common.reductions import require_linear
from . import _graphs, _native
from ._errors import internal_error


class Reduction(NamedTuple):
    """Says how an op reduces: the number of a ReduceOp, two factors, and the number of a process set."""

    op: int
    prescale_factor: float = 1.0
    postscale_factor: float = 1.0
    set_id: int = 0

    def attributes(self) -> "dict[str, int]":
        return {"reduce_op": int(self.op), "prescale": _bits(self.prescale_factor), "postscale": _bits(self.postscale_factor),
                "process_set": self.set_id}


def _bits(value: float) -> int:
    """Returns the bits of a float as an integer: TensorFlow's attributes have floats of 32 bits alone."""
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


@tf.autograph.experimental.do_not_convert
def call(op: str, **arguments: Any) -> Any:
    """Runs an op, or puts it into the graph that is being made.

    Raises:
        HorovodInternalError: the op ran, and failed.
        NotImplementedError: the graph is for XLA.
    """
    function = getattr(_native.ops(), op)
    if tf.executing_eagerly():
        try:
            with tf.device("/cpu:0"):
                return function(**arguments)
        except tf.errors.AbortedError as error:
            raise internal_error(error) from None
    _graphs.refuse_xla()
    with tf.device("/cpu:0"):
        return function(**arguments)


def allreduce(tensors: Sequence[Any], names: Sequence[str], group: str, reduction: Reduction) -> List[Any]:
    """Reduces tensors, under these names, as the group `group`; "" stands for one tensor, which is in no group."""
    return list(call("rueda_allreduce", tensors=list(tensors), anchor=_graphs.anchor(), names=list(names), group=group,
                     **reduction.attributes()))


def broadcast(tensors: Sequence[Any], names: Sequence[str], root_rank: int, set_id: int, is_kept: bool = False) -> List[Any]:
    """Gives all ranks the root's tensors. `is_kept` says that the results become the values of variables: they are then in memory
    of TensorFlow's own, and hold no shared memory for as long as a model lives."""
    return list(call("rueda_broadcast", tensors=list(tensors), anchor=_graphs.anchor(), names=list(names), root_rank=int(root_rank),
                     is_kept=int(is_kept), process_set=set_id))


def allgather(tensor: Any, name: str, set_id: int) -> Tuple[Any, Any]:
    """Returns the tensors of all ranks, one behind the other, and the numbers of their rows, as int64."""
    gathered, rows = call("rueda_allgather", tensor=tensor, anchor=_graphs.anchor(), tensor_name=name, process_set=set_id)
    return gathered, rows


def reducescatter(tensor: Any, rows: Any, name: str, reduction: Reduction) -> Any:
    """Returns this rank's rows of the reduction. `rows` has the numbers of rows that each rank gets, as int64; if it is empty, they
    are as even as can be."""
    return call("rueda_reducescatter", tensor=tensor, rows=rows, anchor=_graphs.anchor(), tensor_name=name, **reduction.attributes())


def alltoall(tensor: Any, splits: Any, name: str, set_id: int) -> Tuple[Any, Any]:
    """Returns what all ranks sent to this one, and the numbers of rows of each, as int64. `splits` has the numbers of rows that go
    to each rank, as int64; if it is empty, the parts are equal."""
    received, received_splits = call("rueda_alltoall", tensor=tensor, splits=splits, anchor=_graphs.anchor(), tensor_name=name,
                                     process_set=set_id)
    return received, received_splits


def barrier(name: str, set_id: int) -> Any:
    return call("rueda_barrier", tensor_name=name, process_set=set_id)


def place(what: str, set_id: int = 0) -> Any:
    """Returns a number of the job that is asked for when the op runs: "rank", "size", "local_rank", "local_size", or "included" in
    a process set."""
    return call("rueda_place", what=what, process_set=set_id)


def no_rows() -> Any:
    return tf.zeros([0], tf.int64)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _reduction_of(op: Any) -> Reduction:
    prescale, postscale = (struct.unpack("<d", struct.pack("<q", op.get_attr(key)))[0] for key in ("prescale", "postscale"))
    return Reduction(op.get_attr("reduce_op"), prescale, postscale, op.get_attr("process_set"))


def _gradient_name(op: Any, attribute: str = "tensor_name") -> str:
    name = op.get_attr(attribute)
    first = _text(name[0] if isinstance(name, (list, tuple)) else name)
    return _graphs.take_name("gradient", first, None, op.get_attr("process_set"))


def _filled(gradients: Sequence[Any], inputs: Sequence[Any]) -> List[Any]:
    """Returns gradients that have the types of the inputs, which TensorFlow's zeros may not have, with zeros for those that are
    missing."""
    return [tf.zeros_like(one) if gradient is None else tf.cast(gradient, one.dtype) for gradient, one in zip(gradients, inputs)]


@tf.RegisterGradient("RuedaAllreduce")
@tf.autograph.experimental.do_not_convert
def _allreduce_gradient(op: Any, *gradients: Any) -> List[Any]:
    reduction = _reduction_of(op)
    require_linear(reduction.op)
    filled = _filled(gradients, op.inputs)
    group = _text(op.get_attr("group"))
    first = _gradient_name(op, "names")
    names = [first] if len(filled) == 1 else [f"{first}.{i}" for i in range(len(filled))]
    return [*allreduce(filled, names, f"{first}.group" if group else "", reduction), None]


@tf.RegisterGradient("RuedaBroadcast")
@tf.autograph.experimental.do_not_convert
def _broadcast_gradient(op: Any, *gradients: Any) -> List[Any]:
    set_id = op.get_attr("process_set")
    first = _gradient_name(op, "names")
    filled = _filled(gradients, op.inputs)
    names = [f"{first}.{i}" for i in range(len(filled))]
    reduced = allreduce(filled, names, f"{first}.group", Reduction(Average, set_id=set_id))
    # A rank that did not use the result would leave the op out of its graph, and the others would wait for it.
    is_root = tf.equal(place("rank"), op.get_attr("root_rank"))
    return [*(tf.where(is_root, one, tf.zeros_like(one)) for one in reduced), None]


@tf.RegisterGradient("RuedaAllgather")
@tf.autograph.experimental.do_not_convert
def _allgather_gradient(op: Any, gradient: Any, _rows: Any) -> List[Any]:
    gradient, = _filled([gradient], [op.outputs[0]])
    reduction = Reduction(Average, set_id=op.get_attr("process_set"))
    part = reducescatter(gradient, op.outputs[1], _gradient_name(op), reduction)
    return [tf.ensure_shape(part, op.inputs[0].shape), None]


@tf.RegisterGradient("RuedaReducescatter")
@tf.autograph.experimental.do_not_convert
def _reducescatter_gradient(op: Any, gradient: Any) -> List[Any]:
    reduction = _reduction_of(op)
    require_linear(reduction.op)
    factor = reduction.prescale_factor * reduction.postscale_factor
    gradient, = _filled([gradient], [op.outputs[0]])
    if reduction.op == Sum:  # the number of ranks may be another one when the graph runs
        gradient = gradient * tf.cast(place("size", reduction.set_id), gradient.dtype)
    gathered, _ = allgather(gradient * tf.cast(factor, gradient.dtype), _gradient_name(op), reduction.set_id)
    return [tf.ensure_shape(gathered, op.inputs[0].shape), None, None]


@tf.RegisterGradient("RuedaAlltoall")
@tf.autograph.experimental.do_not_convert
def _alltoall_gradient(op: Any, gradient: Any, _splits: Any) -> List[Any]:
    gradient, = _filled([gradient], [op.outputs[0]])
    sent, _ = alltoall(gradient, op.outputs[1], _gradient_name(op), op.get_attr("process_set"))
    shape = tf.shape(op.inputs[0])
    unsent = tf.zeros(tf.concat([[shape[0] - tf.shape(sent)[0]], shape[1:]], 0), sent.dtype)
    return [tf.ensure_shape(tf.concat([sent, unsent], 0), op.inputs[0].shape), None, None]


for _op in ("RuedaAnchor", "RuedaBarrier", "RuedaPlace"):
    tf.no_gradient(_op)
