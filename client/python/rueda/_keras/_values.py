"""Reduces and moves values between ranks, and loads models, for both Keras front ends."""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence

import numpy as np
import tensorflow as tf

from .._core._operations import Average
from .._tensorflow import _collectives
from .._tensorflow._compression import Compression
from ._optimizers import distributed_optimizer


def _as_value(result: Any) -> Any:
    return np.asarray(result) if tf.executing_eagerly() else result


def allreduce(value: Any, name: Optional[str] = None, average: Optional[bool] = None, prescale_factor: float = 1.0,
              postscale_factor: float = 1.0, op: Optional[int] = None, compression: Any = Compression.none) -> Any:
    """Reduces a value over all ranks.

    Args:
        value: a tensor, an array or a number.
        name, average, prescale_factor, postscale_factor, op, compression: as for rueda.tensorflow.allreduce().

    Returns:
        A NumPy array.

    Raises:
        TypeError, ValueError, HorovodInternalError: as for rueda.tensorflow.allreduce().
    """
    return _as_value(_collectives.allreduce(tf.convert_to_tensor(value), average, name=name, prescale_factor=prescale_factor,
                                            postscale_factor=postscale_factor, op=op, compression=compression))


def allgather(value: Any, name: Optional[str] = None) -> Any:
    """Returns the values of all ranks, one behind the other, as a NumPy array.

    Raises:
        TypeError, ValueError, HorovodInternalError: as for rueda.tensorflow.allgather().
    """
    return _as_value(_collectives.allgather(tf.convert_to_tensor(value), name))


def broadcast(value: Any, root_rank: int, name: Optional[str] = None) -> Any:
    """Returns the root's value on every rank, as a NumPy array.

    Raises:
        TypeError, ValueError, HorovodInternalError: as for rueda.tensorflow.broadcast().
    """
    return _as_value(_collectives.broadcast(tf.convert_to_tensor(value), root_rank, name))


def reducescatter(value: Any, name: Optional[str] = None, op: int = Average) -> Any:
    """Returns this rank's part of the reduction of all values, as a NumPy array.

    Raises:
        TypeError, ValueError, HorovodInternalError: as for rueda.tensorflow.reducescatter().
    """
    return _as_value(_collectives.reducescatter(tf.convert_to_tensor(value), op=op, name=name))


def load_model(keras: Any, filepath: Any, custom_optimizers: Optional[Sequence[Any]], custom_objects: Optional[Dict[str, Any]],
               compression: Any) -> Any:
    """Loads a model that has been compiled, whose optimizer then reduces gradients."""
    objects = {one.__name__: one for one in custom_optimizers or ()}
    objects.update(custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=objects)
    if getattr(model, "optimizer", None) is None:
        raise ValueError(f"the model in {filepath} has no optimizer; load it by keras.models.load_model, and compile it")
    distributed_optimizer(keras, model.optimizer, compression=compression)
    return model
