"""Reduces the gradients of a training step: those of a tape, and those that a Keras optimizer is given."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Set

import tensorflow as tf

from .._core._operations import Average
from .._core._process_sets import ProcessSet
from . import _graphs, _ops
from ._collectives import allreduce, reduction_of, tensor_of
from ._names import stable_name


def _key(variable: Any) -> int:
    return id(variable)


class GradientReducer:
    """Holds how gradients are reduced. Where there is no graph all dense ones go together, in one op. In a graph each has an op of
    its own, which runs as soon as its gradient is there, beside the rest of the backward pass; `num_groups` or `groups` put several
    into one op. Gradients that are None stay None.

    Attributes:
        local: the variables, by id(), whose gradients are not reduced.
    """

    def __init__(self, name: str, compression: Any, sparse_as_dense: bool, op: int, gradient_predivide_factor: float, num_groups: int,
                 groups: Optional[Any], process_set: ProcessSet, scale_local_gradients: bool = True) -> None:
        if gradient_predivide_factor != 1.0 and op != Average:
            raise ValueError("gradient_predivide_factor divides a part of the average before the sum, so op must be Average")
        if isinstance(groups, int):
            num_groups, groups = groups, None
        if num_groups < 0:
            raise ValueError(f"num_groups={num_groups} must be 0 or more")
        if groups is not None and not all(isinstance(group, (list, tuple)) for group in groups):
            raise ValueError("groups must be a number, or a list of lists of variables")
        self.name, self.compression, self.sparse_as_dense = name, compression, sparse_as_dense
        self.op, self.predivide = op, float(gradient_predivide_factor)
        self.num_groups, self.groups = num_groups, groups
        self.process_set, self.scales_local = process_set, scale_local_gradients
        self.local: Set[int] = set()
        self._kept: List[Any] = []  # so that ids stay those of these variables

    def add_local(self, variable: Any) -> None:
        """Has the gradient of a variable stay this rank's own. It is divided by the number of ranks if `scale_local_gradients` is
        True, because the loss of a rank counts that much in the average."""
        self.local.add(_key(variable))
        self._kept.append(variable)

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
            if _key(variable) in self.local:
                results[i] = self._scaled(gradient)
            elif isinstance(gradient, tf.IndexedSlices) and not self.sparse_as_dense:
                results[i] = allreduce(gradient, op=self.op, prescale_factor=1.0 / self.predivide, postscale_factor=self.predivide,
                                       name=names[i], process_set=self.process_set)
            else:
                dense.append(i)
        for members in self._parts(dense, variables):
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

    def _parts(self, dense: List[int], variables: Sequence[Any]) -> List[List[int]]:
        """Returns which gradients go into one op."""
        if self.groups is not None:
            group_of: Dict[int, int] = {_key(one): number for number, group in enumerate(self.groups) for one in group}
            parts: Dict[int, List[int]] = {}
            for i in dense:  # those in no group go alone
                parts.setdefault(group_of.get(_key(variables[i]), -1 - i), []).append(i)
            return list(parts.values())
        if self.num_groups > 0:
            most = -(-len(dense) // self.num_groups)
            return [dense[i:i + most] for i in range(0, len(dense), most)] if dense else []
        if tf.executing_eagerly():
            return [dense] if dense else []
        return [[i] for i in dense]

    def _reduce_dense(self, gradients: Sequence[Any], names: Sequence[str]) -> List[Any]:
        reduction = reduction_of(self.op, 1.0 / self.predivide, self.predivide, self.process_set)
        pairs = [self.compression.compress(tensor_of(tf.convert_to_tensor(gradient), "a gradient")) for gradient in gradients]
        compressed = [pair[0] for pair in pairs]
        taken = [_graphs.take_name("allreduce", name, one, reduction.set_id) for name, one in zip(names, compressed)]
        group = "" if len(taken) == 1 else _graphs.take_name("group", names[0], None, reduction.set_id)
        reduced = _ops.allreduce(compressed, taken, group, reduction)
        return [self.compression.decompress(one, context) for one, (_, context) in zip(reduced, pairs)]
