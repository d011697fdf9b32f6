"""Implements batch normalisation over all ranks, to be mixed into the BatchNormalization of a Keras."""

from __future__ import annotations

import itertools
from typing import Any, Sequence

import tensorflow as tf

from .._core import _context
from .._tensorflow._moments import moments

_numbers = itertools.count()


class _Synchronizing:
    def __init__(self, fused: bool = False, **kwargs: Any) -> None:
        if fused in (True, None):
            raise ValueError("SyncBatchNormalization does not support fused=True; leave it out")
        super().__init__(**kwargs)
        if getattr(self, "virtual_batch_size", None) is not None:
            raise ValueError("SyncBatchNormalization does not support virtual_batch_size; leave it out")
        object.__setattr__(self, "_rueda_name", f"sync_batch_norm.{next(_numbers)}")

    def _is_alone(self) -> bool:
        return not _context.is_initialized() or _context.size() == 1


class SynchronizingKeras3(_Synchronizing):
    """Is put before the BatchNormalization of Keras 3."""

    _reduction_axes: Sequence[int]

    def _moments(self, inputs: Any, mask: Any) -> Any:
        if self._is_alone():
            return super()._moments(inputs, mask)  # type: ignore[misc]
        return moments(inputs, self._reduction_axes, mask, self._rueda_name)  # type: ignore[attr-defined]


class SynchronizingKeras2(_Synchronizing):
    """Is put before the BatchNormalization of Keras 2."""

    def __init__(self, fused: bool = False, **kwargs: Any) -> None:
        super().__init__(fused, **kwargs)
        self.fused = False

    def _calculate_mean_and_var(self, inputs: Any, reduction_axes: Sequence[int], keep_dims: bool, mask: Any = None) -> Any:
        if self._is_alone():
            return super()._calculate_mean_and_var(inputs, reduction_axes, keep_dims, mask)  # type: ignore[misc]
        mean, variance = moments(inputs, reduction_axes, mask, self._rueda_name)  # type: ignore[attr-defined]
        if keep_dims:
            shape = [1 if axis in reduction_axes else size for axis, size in enumerate(inputs.shape)]
            mean, variance = tf.reshape(mean, shape), tf.reshape(variance, shape)
        return mean, variance


def mixin_of(keras: Any) -> type:
    """Returns which of the classes above is for a Keras."""
    return SynchronizingKeras3 if int(getattr(keras, "__version__", "2").split(".")[0]) >= 3 else SynchronizingKeras2
