"""Offers batch normalisation over all ranks for tf.keras."""

from __future__ import annotations

from tensorflow import keras

from .._keras._batch_norm import mixin_of


@keras.utils.register_keras_serializable(package="rueda.tensorflow")  # type: ignore[untyped-decorator]
class SyncBatchNormalization(mixin_of(keras), keras.layers.BatchNormalization):  # type: ignore[misc]
    """A tf.keras.layers.BatchNormalization whose mean and variance are those of the batches of all ranks together, in training.

    Ranks may have different numbers of rows, also none. All ranks make their layers in the same order. A model with such a layer is loaded
    where this module has been imported.

    Args:
        fused: must be False.
        kwargs: as for BatchNormalization. There is no virtual_batch_size.

    Raises:
        ValueError: an argument is not supported.
    """


__all__ = ["SyncBatchNormalization"]
