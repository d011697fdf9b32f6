"""Offers Horovod's DistributedOptimizer of TensorFlow, which takes Keras's optimizers here."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from .._core._operations import Average
from .._core._process_sets import ProcessSet, global_process_set
from .._keras._optimizers import distributed_optimizer
from .._tensorflow._compression import Compression
from .._tensorflow._gradients import GradientReducer


def DistributedOptimizer(optimizer: Any, name: Optional[str] = None, use_locking: bool = False, device_dense: str = '',
                         device_sparse: str = '', compression: Any = Compression.none, sparse_as_dense: bool = False,
                         backward_passes_per_step: int = 1, op: int = Average, gradient_predivide_factor: float = 1.0,
                         average_aggregated_gradients: bool = False, num_groups: int = 0, groups: Optional[Any] = None,
                         process_set: ProcessSet = global_process_set, scale_local_gradients: bool = True) -> Any:
    """Has an optimizer of tf.keras reduce gradients over all ranks before it applies them, as
    rueda.tensorflow.keras.DistributedOptimizer() does.

    Args:
        use_locking: not used.
        optimizer, name, device_dense, device_sparse, compression, sparse_as_dense, backward_passes_per_step, op,
            gradient_predivide_factor, average_aggregated_gradients, num_groups, groups, process_set, scale_local_gradients: as
            there.

    Returns:
        The optimizer, or the LossScaleOptimizer around it.

    Raises:
        ValueError: as there; also for optimizers of TensorFlow 1.
    """
    return distributed_optimizer(tf.keras, GradientReducer, optimizer, name, compression, sparse_as_dense, gradient_predivide_factor, op,
                                 backward_passes_per_step, average_aggregated_gradients, num_groups, groups, process_set,
                                 scale_local_gradients)
