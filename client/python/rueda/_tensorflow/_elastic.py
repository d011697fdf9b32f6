"""Implements elastic training with TensorFlow: the loop, and the state of variables."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

import tensorflow as tf

from .._core._errors import RuedaError
from .._elastic._run import again_and_again
from .._elastic._variables import VariablesState
from ._errors import told_by
from ._job import init
from ._objects import broadcast_object, broadcast_variables


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a training function whose first argument is a State.

    The ranks join the job and the state is made equal on all of them first, each time. After HorovodInternalError, or the
    tf.errors.AbortedError of a graph in which a collective has failed, it goes back to the last commit(), after
    HostsUpdatedInterrupt it stays; then all ranks join the job anew and the function is called again. In an elastic job (ruedarun
    --min-np) these are the ranks that live. Mistakes of the program (ranks that disagree, wrong arguments) are raised.

    Args:
        func: the function. A tf.function must be called within it, not be it.

    Returns:
        The decorated function, which returns what `func` returns.

    Raises:
        RuntimeError: by the decorated function, after HOROVOD_ELASTIC_RESET_LIMIT resets, if that is set.
    """
    return again_and_again(func, init, _told_by)


def _told_by(error: Exception) -> Optional[RuedaError]:
    return told_by(error) if isinstance(error, tf.errors.AbortedError) else None


class TensorFlowState(VariablesState):
    """The state of tf.Variables, and of any other object that can be pickled, given by name.

    Args:
        variables: tf.Variables, in the same order on all ranks; in a graph of TensorFlow 1 they may be left out.
        session: not used.

    Raises:
        ValueError: there are no variables.
    """

    def __init__(self, variables: Optional[Sequence[Any]] = None, session: Any = None, **kwargs: Any) -> None:
        if variables is None:
            raise ValueError("TensorFlowState has no variables; pass variables=[...], or use TensorFlowKerasState(model)")
        self.variables = list(variables)
        super().__init__(lambda: self.variables, broadcast_variables, broadcast_object, **kwargs)


__all__ = ["TensorFlowState", "run"]
