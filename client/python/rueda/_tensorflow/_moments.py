"""Computes means and variances over the batches of all ranks, for batch normalisation."""

from __future__ import annotations

from typing import Any, Sequence, Tuple

import tensorflow as tf

from .._core._operations import Sum
from ._collectives import allreduce, plain


@plain
def moments(inputs: Any, axes: Sequence[int], mask: Any, name: str) -> Tuple[Any, Any]:
    """Returns the mean and the variance of all ranks' inputs over the axes, which are dropped. Gradients pass through. Sums are
    float64, so that the square's mean less the mean's square is exact enough. Ranks may have different numbers of rows, also none.

    Args:
        inputs: a tensor.
        axes: the axes over which values count as one channel.
        mask: None, or a tensor with the shape of the inputs without the last dimension; only what is true there counts.
        name: the same on all ranks.
    """
    wide = tf.cast(inputs, tf.float64)
    if mask is None:
        weights = tf.ones_like(wide)
    else:
        weights = tf.broadcast_to(tf.cast(mask, tf.float64)[..., None], tf.shape(wide))
        wide = tf.where(weights > 0, wide, tf.zeros_like(wide))  # what is masked may not be finite
    parts = [tf.reduce_sum(one, axes) for one in (weights, wide, wide * wide)]
    count, total, squares = tf.unstack(allreduce(tf.stack(parts), op=Sum, name=name))
    count = tf.maximum(count, 1.0)
    mean = total / count
    variance = tf.maximum(squares / count - mean * mean, 0.0)
    return tf.cast(mean, inputs.dtype), tf.cast(variance, inputs.dtype)
