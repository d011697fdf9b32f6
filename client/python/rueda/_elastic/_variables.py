"""Defines the state of variables that have assign()."""

from __future__ import annotations

from typing import Any, Callable, List

import numpy as np

from .._core._context import rank
from ._state import ObjectState


def _copied(variable: Any) -> np.ndarray:
    return np.array(variable.numpy() if hasattr(variable, "numpy") else variable)


class VariablesState(ObjectState):
    """The base of states that hold variables beside their attributes.

    Args:
        list_variables: returns the variables, in the same order on all ranks.
        broadcast_variables: gives variables the values of a rank.
        bcast_object: as for State.
    """

    def __init__(self, list_variables: Callable[[], List[Any]], broadcast_variables: Callable[[List[Any], int], Any],
                 bcast_object: Callable[..., Any], **kwargs: Any) -> None:
        self._list_variables, self._broadcast_variables = list_variables, broadcast_variables
        self._values: List[Any] = []
        super().__init__(bcast_object, rank, **kwargs)
        self._save_variables()

    def _save_variables(self) -> None:
        self._values = [_copied(variable) for variable in self._list_variables()]

    def save(self) -> None:
        """Keeps the values in memory."""
        self._save_variables()
        super().save()

    def restore(self) -> None:
        """Goes back to what save() kept."""
        for variable, value in zip(self._list_variables(), self._values):
            variable.assign(value)
        super().restore()

    def _sync_from(self, root: int) -> None:
        self._broadcast_variables(self._list_variables(), root)
        self._save_variables()
        super()._sync_from(root)
