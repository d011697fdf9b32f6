"""Horovod's API for Keras 3 over Rueda, on the TensorFlow backend.

    import rueda.keras as hvd
    hvd.init()                                          # ruedarun -np 4 python3 train.py
    model.compile(optimizer=hvd.DistributedOptimizer(optimizer), ...)
    model.fit(..., callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
"""

from typing import Any, Dict, Optional, Sequence

from ._backend import keras  # first: it says what is missing
from ..tensorflow import (Adasum, Average, Compression, Max, Min, ProcessSet, Product, Sum, add_process_set, ccl_built,
                          cross_rank, cross_size, cuda_built, ddl_built, global_process_set, gloo_built, gloo_enabled, init,
                          is_initialized, local_rank, local_size, mpi_built, mpi_enabled, mpi_threads_supported, nccl_built, rank,
                          remove_process_set, rocm_built, shutdown, size, start_timeline, stop_timeline)
from .._tensorflow._objects import broadcast_global_variables
from .._keras._optimizers import distributed_optimizer
from .._keras._values import allgather, allreduce, broadcast, reducescatter
from .._keras._values import load_model as _load_model
from . import callbacks, elastic


def DistributedOptimizer(optimizer: Any, name: Optional[str] = None, device_dense: str = '', device_sparse: str = '',
                         compression: Any = Compression.none, sparse_as_dense: bool = False,
                         gradient_predivide_factor: float = 1.0, op: int = Average, backward_passes_per_step: int = 1,
                         average_aggregated_gradients: bool = False, num_groups: int = 0, groups: Optional[Any] = None,
                         process_set: ProcessSet = global_process_set, scale_local_gradients: bool = True) -> Any:
    """Has a Keras optimizer reduce gradients over all ranks before it applies them. What is saved with it is loaded without Rueda.

    Args:
        optimizer: the optimizer, which is changed. Under the policy mixed_float16 a LossScaleOptimizer comes around it: an infinity
            on one rank then has all ranks skip the step.
        name: a prefix of the names under which ranks meet.
        device_dense, device_sparse: not used.
        compression, sparse_as_dense, gradient_predivide_factor, op, num_groups, groups, process_set, scale_local_gradients: as for
            rueda.tensorflow.DistributedGradientTape().
        backward_passes_per_step: the number of calls after which the optimizer takes a step (Keras 3). Gradients are reduced in each.
        average_aggregated_gradients: if True, that step has the average of these gradients, and otherwise their sum.

    Returns:
        The optimizer, or the LossScaleOptimizer around it.

    Raises:
        ValueError: it is no optimizer of Keras, is a DistributedOptimizer already, or an argument is wrong.
    """
    return distributed_optimizer(keras, optimizer, name, compression, sparse_as_dense, gradient_predivide_factor, op,
                                 backward_passes_per_step, average_aggregated_gradients, num_groups, groups, process_set,
                                 scale_local_gradients)


def PartialDistributedOptimizer(optimizer: Any, name: Optional[str] = None, device_dense: str = '', device_sparse: str = '',
                                compression: Any = Compression.none, sparse_as_dense: bool = False,
                                gradient_predivide_factor: float = 1.0, op: int = Average,
                                backward_passes_per_step: int = 1, average_aggregated_gradients: bool = False, num_groups: int = 0,
                                groups: Optional[Any] = None, process_set: ProcessSet = global_process_set,
                                local_layers: Any = None, scale_local_gradients: bool = True) -> Any:
    """Does what DistributedOptimizer() does, and leaves out the variables of some layers.

    Args:
        local_layers: a layer, or a list of layers, whose gradients stay this rank's own.
        optimizer, name, device_dense, device_sparse, compression, sparse_as_dense, gradient_predivide_factor, op,
            backward_passes_per_step, average_aggregated_gradients, num_groups, groups, process_set, scale_local_gradients: as for DistributedOptimizer().

    Returns:
        The optimizer, or the LossScaleOptimizer around it.

    Raises:
        ValueError: as for DistributedOptimizer().
    """
    return distributed_optimizer(keras, optimizer, name, compression, sparse_as_dense, gradient_predivide_factor, op, backward_passes_per_step,
                                 average_aggregated_gradients, num_groups, groups,
                                 process_set=process_set, scale_local_gradients=scale_local_gradients, local_layers=local_layers)


def load_model(filepath: Any, custom_optimizers: Optional[Sequence[Any]] = None, custom_objects: Optional[Dict[str, Any]] = None,
               compression: Any = Compression.none, legacy_opts: bool = False) -> Any:
    """Loads a model that has been saved with its optimizer, which then reduces gradients over all ranks.

    Args:
        filepath: what keras.models.load_model() takes.
        custom_optimizers: classes of optimizers that are not Keras's.
        custom_objects: other objects that are not Keras's, by name.
        compression: the Compression of the gradients.
        legacy_opts: not used.

    Returns:
        The model.

    Raises:
        ValueError: the model has been saved without an optimizer.
    """
    return _load_model(keras, filepath, custom_optimizers, custom_objects, compression)


__all__ = [
    "Adasum", "Average", "Compression", "DistributedOptimizer", "Max", "Min", "PartialDistributedOptimizer", "ProcessSet", "Product",
    "Sum", "add_process_set", "allgather", "allreduce", "broadcast", "broadcast_global_variables", "callbacks", "ccl_built",
    "cross_rank", "cross_size", "cuda_built", "ddl_built", "elastic", "global_process_set", "gloo_built", "gloo_enabled", "init", "is_initialized",
    "load_model", "local_rank", "local_size", "mpi_built", "mpi_enabled", "mpi_threads_supported", "nccl_built", "rank",
    "reducescatter", "remove_process_set", "rocm_built", "shutdown", "size", "start_timeline", "stop_timeline",
]
