"""Holds how the gradients of a training step are reduced, for front ends whose optimizers are given them all at once."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Set

from .._core._operations import Average
from .._core._process_sets import ProcessSet


def _key(variable: Any) -> int:
    return id(variable)


class Reducer:
    """The base of what reduces gradients by a framework's collectives. Gradients that are None stay None.

    Attributes:
        local: the variables, by id(), whose gradients are not reduced.

    Args:
        name: the beginning of the names under which ranks meet.
        compression: one of the front end's Compression.
        sparse_as_dense: if True, sparse gradients are made dense and reduced.
        op: Average, Sum or Adasum.
        gradient_predivide_factor: the sum's contributions are divided by it before, and the average is made up for it after.
        num_groups: the number of operations that the gradients are spread over; 0 leaves it to the framework.
        groups: lists of variables whose gradients go into one operation, or what `num_groups` is.
        process_set: the ranks that take part.
        scale_local_gradients: if True, local gradients are divided by the number of ranks.

    Raises:
        ValueError: an argument is wrong.
    """

    has_stateless_hook = False  # whether Keras reaches a LossScaleOptimizer by stateless_apply()

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

    def is_local(self, variable: Any) -> bool:
        return _key(variable) in self.local

    def reduce(self, gradients: Sequence[Any], variables: Sequence[Any]) -> List[Any]:
        """Returns the reduced gradients of `variables`, in the same order.

        Raises:
            TypeError, ValueError: a gradient is not one that can be reduced.
            HorovodInternalError: ranks disagree, or a rank is lost; where a program is compiled, what the framework makes of it.
        """
        results = list(gradients)
        dense = []
        for i, (gradient, variable) in enumerate(zip(gradients, variables)):
            if gradient is None:
                continue
            if self.is_local(variable):
                results[i] = self.scale(gradient, 1.0 / self.process_set.size()) if self.scales_local else gradient  # type: ignore[operator]
            else:
                dense.append(i)
        for number, members in enumerate(self.parts(dense, variables)):
            for i, one in zip(members, self.reduce_together([gradients[i] for i in members], f"{self.name}.{number}")):
                results[i] = one
        return results

    def parts(self, dense: List[int], variables: Sequence[Any]) -> List[List[int]]:
        """Returns which gradients go into one operation."""
        if self.groups is not None:
            group_of: Dict[int, int] = {_key(one): number for number, group in enumerate(self.groups) for one in group}
            parts: Dict[int, List[int]] = {}
            for i in dense:  # those in no group go alone
                parts.setdefault(group_of.get(_key(variables[i]), -1 - i), []).append(i)
            return list(parts.values())
        if self.num_groups > 0:
            most = -(-len(dense) // self.num_groups)
            return [dense[i:i + most] for i in range(0, len(dense), most)] if dense else []
        return self.parts_by_default(dense)

    def parts_by_default(self, dense: List[int]) -> List[List[int]]:
        return [dense] if dense else []

    def reduce_together(self, gradients: Sequence[Any], name: str) -> List[Any]:
        """Returns reduced gradients, all of one operation of this name."""
        raise NotImplementedError

    def scale(self, gradient: Any, factor: float) -> Any:
        """Returns a gradient times a factor, in its own type."""
        return gradient * factor


__all__ = ["Reducer"]
