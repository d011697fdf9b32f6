"""Reduces the gradients of a training step: those of a tape, and those that a Keras optimizer is given."""

from __future__ import annotations

from typing import Any, List, Sequence

import tensorflow as tf

from ..common.gradients import Reducer
from . import _graphs, _ops
from ._collectives import allreduce, reduction_of, tensor_of
from ..common.names import stable_name


class GradientReducer(Reducer):
    """Reduces gradients by ops. Where there is no graph all dense ones go together, in one op. In a graph each has an op of
    its own, which runs as soon as its gradient is there, beside the rest of the backward pass; `num_groups` or `groups` put several
    into one op."""

    def reduce(self, gradients: Sequence[Any], variables: Sequence[Any], has_names: bool = True) -> List[Any]:
        """Returns the reduced gradients of `variables`, in the same order. Ranks meet under the variables' places and names, or
        under their places alone.

        Raises:
            TypeError, ValueError: a gradient is not one that can be reduced.
            HorovodInternalError: ranks disagree, or a rank is lost. In a graph that is tf.errors.AbortedError when the graph runs.
        """
        results = list(gradients)
        dense: List[int] = []
        names = [f"{self.name}.{i}" + (f".{stable_name(variable)}" if has_names else "") for i, variable in enumerate(variables)]
        for i, (gradient, variable) in enumerate(zip(gradients, variables)):
            if gradient is None:
                continue
            if self.is_local(variable):
                results[i] = self._scaled(gradient)
            elif isinstance(gradient, tf.IndexedSlices) and not self.sparse_as_dense:
                results[i] = allreduce(gradient, op=self.op, prescale_factor=1.0 / self.predivide, postscale_factor=self.predivide,
                                       name=names[i], process_set=self.process_set)
            else:
                dense.append(i)
        for members in self.parts(dense, variables):
            reduced = self._reduce_dense([gradients[i] for i in members], [names[i] for i in members])
            for i, one in zip(members, reduced):
                results[i] = one
        return results

    def _scaled(self, gradient: Any) -> Any:
        if not self.scales_local:
            return gradient
        size = _ops.place("size", reduction_of(self.op, 1.0, 1.0, self.process_set).set_id)
        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(gradient.values / tf.cast(size, gradient.values.dtype), gradient.indices, gradient.dense_shape)
        return gradient / tf.cast(size, gradient.dtype)

    def parts_by_default(self, dense: List[int]) -> List[List[int]]:
        return super().parts_by_default(dense) if tf.executing_eagerly() else [[i] for i in dense]

    def scale(self, gradient: Any, factor: float) -> Any:
        return gradient * tf.cast(factor, gradient.dtype)

    def _reduce_dense(self, gradients: Sequence[Any], names: Sequence[str]) -> List[Any]:
        reduction = reduction_of(self.op, 1.0 / self.predivide, self.predivide, self.process_set)
        pairs = [self.compression.compress(tensor_of(tf.convert_to_tensor(gradient), "a gradient")) for gradient in gradients]
        compressed = [pair[0] for pair in pairs]
        taken = [_graphs.take_name("allreduce", name, one, reduction.set_id) for name, one in zip(names, compressed)]
        group = "" if len(taken) == 1 else _graphs.take_name("group", names[0], None, reduction.set_id)
        reduced = _ops.allreduce(compressed, taken, group, reduction)
        return [self.compression.decompress(one, context) for one, (_, context) in zip(reduced, pairs)]
