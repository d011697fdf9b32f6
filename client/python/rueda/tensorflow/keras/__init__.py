"""Horovod's API for tf.keras over Rueda.

    import rueda.tensorflow.keras as hvd
    hvd.init()                                          # ruedarun -np 4 python3 train.py
    model.compile(optimizer=hvd.DistributedOptimizer(optimizer), ...)
    model.fit(..., callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])

Its Keras is the one that tf.keras is: Keras 3, or Keras 2 in TensorFlow 2.15 and with TF_USE_LEGACY_KERAS=1."""

from tensorflow import keras

from .. import (Adasum, Average, Compression, Max, Min, ProcessSet, Product, Sum, add_process_set, ccl_built, cross_rank,
                cross_size, cuda_built, ddl_built, global_process_set, gloo_built, gloo_enabled, init, is_initialized, local_rank,
                local_size, mpi_built, mpi_enabled, mpi_threads_supported, nccl_built, rank, remove_process_set, rocm_built,
                shutdown, size, start_timeline, stop_timeline)
from ..._tensorflow._gradients import GradientReducer
from ..._tensorflow._objects import broadcast_global_variables
from ..._keras._front import Framework, distributed_optimizer_of, load_model_of, partial_distributed_optimizer_of
from ..._keras._values import allgather, allreduce, broadcast, reducescatter
from ..sync_batch_norm import SyncBatchNormalization
from . import callbacks, elastic

_framework = Framework(keras, GradientReducer, Compression)
DistributedOptimizer = distributed_optimizer_of(_framework)
PartialDistributedOptimizer = partial_distributed_optimizer_of(_framework)
load_model = load_model_of(_framework)

__all__ = [
    "Adasum", "Average", "Compression", "DistributedOptimizer", "Max", "Min", "PartialDistributedOptimizer", "ProcessSet", "Product",
    "Sum", "SyncBatchNormalization", "add_process_set", "allgather", "allreduce", "broadcast", "broadcast_global_variables", "callbacks", "ccl_built",
    "cross_rank", "cross_size", "cuda_built", "ddl_built", "elastic", "global_process_set", "gloo_built", "gloo_enabled", "init", "is_initialized",
    "load_model", "local_rank", "local_size", "mpi_built", "mpi_enabled", "mpi_threads_supported", "nccl_built", "rank",
    "reducescatter", "remove_process_set", "rocm_built", "shutdown", "size", "start_timeline", "stop_timeline",
]
