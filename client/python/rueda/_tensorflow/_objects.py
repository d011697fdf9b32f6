"""Makes things equal on all ranks: variables, and any object."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence

import tensorflow as tf

from .._core import _objects
from .._core._errors import RuedaError
from .._core._operations import is_root, require_init
from .._core._process_sets import ProcessSet, global_process_set, id_of
from ..common.exceptions import horovod_error
from . import _graphs, _ops
from ._collectives import plain, tensor_of
from ..common.names import stable_name


@plain
def broadcast_(variables: Sequence[Any], root_rank: int, name: Optional[str] = None,
               process_set: ProcessSet = global_process_set) -> List[Any]:
    """Gives variables the root's values.

    Args:
        variables: tf.Variables (or Keras's), of the same shapes and in the same order on all ranks.
        root_rank: the rank whose values all ranks get.
        name: the same on all ranks; "variables" if None.
        process_set: the ranks that take part.

    Returns:
        The new values, in a list.

    Raises:
        TypeError, ValueError: a variable or an argument is wrong.
        HorovodInternalError: ranks disagree, or a rank is lost. In a graph that is tf.errors.AbortedError when the graph runs.
    """
    require_init()
    is_root(root_rank)  # raises for what is no rank
    set_id = id_of(process_set)
    variables = list(variables)
    if not variables:
        return []
    values = [tensor_of(variable, f"variables[{i}]") for i, variable in enumerate(variables)]
    whole = _graphs.take_name("broadcast_", "variables" if name is None else name, None, set_id)
    names = [_graphs.shortened(f"{whole}.{i}.{stable_name(variable)}") for i, variable in enumerate(variables)]
    received = _ops.broadcast(values, names, root_rank, set_id, is_kept=True)
    assigned = [variable.assign(value) for variable, value in zip(variables, received)]
    if tf.executing_eagerly():
        return received
    with tf.control_dependencies([one for one in assigned if one is not None]):
        return [tf.identity(value) for value in received]


@plain
def broadcast_variables(variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set,
                        inplace: bool = False) -> Any:
    """Gives variables the root's values, as broadcast_() does.

    Args:
        variables: tf.Variables (or Keras's), such as model.weights.
        root_rank, process_set: as for broadcast_().
        inplace: not used: variables always keep their memory or get TensorFlow's own.

    Returns:
        None, or in a graph an op that does it.

    Raises:
        TypeError, ValueError, HorovodInternalError: as for broadcast_().
    """
    values = broadcast_(variables, root_rank, None, process_set)
    return None if tf.executing_eagerly() else tf.group(*values)


def _require_eager(function: str) -> None:
    if not tf.executing_eagerly():
        raise RuntimeError(f"{function}() waits for other ranks, and a graph that is being made cannot; call it outside of tf.function")


@plain
def broadcast_object(obj: Any, root_rank: int = 0, session: Any = None, name: Optional[str] = None,
                     process_set: ProcessSet = global_process_set) -> Any:
    """Returns the root's `obj` on every rank. It is pickled on the way (by cloudpickle, if that is installed).

    Args:
        obj: the object; only the root's is used.
        root_rank: the rank whose object all ranks get.
        session: not used.
        name: the same on all ranks.
        process_set: the ranks that take part.

    Returns:
        The root's object.

    Raises:
        HorovodInternalError: ranks disagree, or a rank is lost.
        RuntimeError: a graph is being made.
    """
    _require_eager("broadcast_object")
    require_init()
    try:
        return _objects.broadcast_object(obj, root_rank, name, process_set)
    except RuedaError as error:
        raise horovod_error(error) from None


def broadcast_object_fn(root_rank: int = 0, session: Any = None, name: Optional[str] = None,
                        process_set: ProcessSet = global_process_set) -> Callable[[Any], Any]:
    """Returns a function of an object that does what broadcast_object() does with these arguments."""
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


@plain
def allgather_object(obj: Any, session: Any = None, name: Optional[str] = None,
                     process_set: ProcessSet = global_process_set) -> List[Any]:
    """Returns the `obj`s of all ranks, in the order of the ranks.

    Args:
        obj: this rank's object, which must be picklable.
        session: not used.
        name: the same on all ranks.
        process_set: the ranks that take part.

    Returns:
        A list of one object a rank.

    Raises:
        HorovodInternalError: ranks disagree, or a rank is lost.
        RuntimeError: a graph is being made.
    """
    _require_eager("allgather_object")
    require_init()
    try:
        return _objects.allgather_object(obj, name, process_set)
    except RuedaError as error:
        raise horovod_error(error) from None


def broadcast_global_variables(root_rank: int) -> Any:
    """Gives all global variables of a graph of TensorFlow 1 the root's values.

    Raises:
        RuntimeError: TensorFlow 2 runs eagerly, and has no global variables.
    """
    if tf.executing_eagerly() or not tf.compat.v1.global_variables():
        raise RuntimeError("there are no global variables in TensorFlow 2; use broadcast_variables(model.weights, root_rank)")
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


__all__ = ["allgather_object", "broadcast_", "broadcast_global_variables", "broadcast_object", "broadcast_object_fn",
           "broadcast_variables"]
