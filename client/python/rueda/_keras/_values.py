"""Reduces and moves values between ranks, where Keras is on TensorFlow."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np
import tensorflow as tf

from .._core._operations import Average
from .._tensorflow import _collectives
from .._tensorflow._compression import Compression


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
