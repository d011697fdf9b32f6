"""Reduces and moves values and variables between ranks as NumPy's arrays, where Keras is not on TensorFlow."""

from __future__ import annotations

from typing import Any, Callable, List, Optional

import keras
import numpy as np

from .._core import _objects, _operations, _parts
from .._core._errors import RuedaError
from .._core._operations import Average
from ..common.exceptions import horovod_error
from ..common.names import stable_name
from ..common.reductions import chosen_op


def _array(value: Any) -> np.ndarray:
    return np.array(keras.ops.convert_to_numpy(value))


def _with_horovods_error(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except RuedaError as error:
        raise horovod_error(error) from None


def allreduce(value: Any, name: Optional[str] = None, average: Optional[bool] = None, prescale_factor: float = 1.0,
              postscale_factor: float = 1.0, op: Optional[int] = None, compression: Any = None) -> Any:
    """Reduces a value over all ranks.

    Args:
        value: a tensor, an array or a number.
        name, average, prescale_factor, postscale_factor, op: as for rueda.tensorflow.allreduce().
        compression: not used.

    Returns:
        A NumPy array.

    Raises:
        TypeError, ValueError, HorovodInternalError: as for rueda.tensorflow.allreduce().
    """
    chosen = chosen_op(op, average)
    return _with_horovods_error(lambda: _operations.allreduce(_array(value), name, chosen, prescale_factor=prescale_factor,
                                                              postscale_factor=postscale_factor))


def allgather(value: Any, name: Optional[str] = None) -> Any:
    """Returns the values of all ranks, one behind the other, as a NumPy array.

    Raises:
        TypeError, ValueError, HorovodInternalError: as for rueda.tensorflow.allgather().
    """
    return _with_horovods_error(lambda: _parts.allgather(_array(value), name))


def broadcast(value: Any, root_rank: int, name: Optional[str] = None) -> Any:
    """Returns the root's value on every rank, as a NumPy array.

    Raises:
        TypeError, ValueError, HorovodInternalError: as for rueda.tensorflow.broadcast().
    """
    return _with_horovods_error(lambda: _operations.broadcast(_array(value), root_rank, name))


def reducescatter(value: Any, name: Optional[str] = None, op: int = Average) -> Any:
    """Returns this rank's part of the reduction of all values, as a NumPy array.

    Raises:
        TypeError, ValueError, HorovodInternalError: as for rueda.tensorflow.reducescatter().
    """
    return _with_horovods_error(lambda: _parts.reducescatter(_array(value), name, op))


def broadcast_variables(variables: List[Any], root_rank: int) -> None:
    """Gives Keras's variables the root's values. They are of the same shapes and in the same order on all ranks.

    Raises:
        HorovodInternalError: ranks disagree, or a rank is lost.
    """
    def carry_out() -> None:
        handles = [_operations.broadcast_async(_array(variable), root_rank, f"keras.variables.{i}.{stable_name(variable)}")
                   for i, variable in enumerate(variables)]
        for variable, handle in zip(variables, handles):
            variable.assign(_operations.synchronize(handle))

    _with_horovods_error(carry_out)


def broadcast_object(obj: Any, root_rank: int = 0, name: Optional[str] = None) -> Any:
    """Returns the root's object on every rank, as rueda.tensorflow.broadcast_object() does."""
    return _with_horovods_error(lambda: _objects.broadcast_object(obj, root_rank, name))


def broadcast_global_variables(root_rank: int) -> Any:
    """Raises RuntimeError: there are no global variables outside of TensorFlow 1."""
    raise RuntimeError("there are no global variables; use callbacks.BroadcastGlobalVariablesCallback(root_rank)")


__all__ = ["allgather", "allreduce", "broadcast", "broadcast_global_variables", "broadcast_object", "broadcast_variables",
           "reducescatter"]
