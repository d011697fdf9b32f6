"""Horovod's API for Keras 3 over Rueda, on the backends tensorflow, jax and torch.

    import rueda.keras as hvd
    hvd.init()                                          # ruedarun -np 4 python3 train.py
    model.compile(optimizer=hvd.DistributedOptimizer(optimizer), ...)
    model.fit(..., callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])

The backend is the one that Keras has when this is imported."""

from ._backend import check, functions, keras  # first: it says what is missing
from .._core._context import cross_rank, cross_size, is_initialized, local_rank, local_size, rank, size
from .._core._operations import Adasum, Average, Max, Min, Product, Sum
from .._core._process_sets import ProcessSet, global_process_set
from ..common.job import (ccl_built, ddl_built, gloo_built, gloo_enabled, mpi_built, mpi_enabled, mpi_threads_supported, nccl_built,
                          rocm_built, shutdown, start_timeline, stop_timeline)
from ..common.process_sets import add_process_set, remove_process_set
from .._keras._front import Framework, distributed_optimizer_of, load_model_of, partial_distributed_optimizer_of
from . import callbacks, elastic

Compression = functions.Compression
allgather, allreduce, broadcast, reducescatter = functions.allgather, functions.allreduce, functions.broadcast, functions.reducescatter
broadcast_global_variables = functions.broadcast_global_variables
cuda_built, init = functions.cuda_built, functions.init

_framework = Framework(keras, functions.GradientReducer, Compression, check)
DistributedOptimizer = distributed_optimizer_of(_framework)
PartialDistributedOptimizer = partial_distributed_optimizer_of(_framework)
load_model = load_model_of(_framework)

__all__ = [
    "Adasum", "Average", "Compression", "DistributedOptimizer", "Max", "Min", "PartialDistributedOptimizer", "ProcessSet", "Product",
    "Sum", "add_process_set", "allgather", "allreduce", "broadcast", "broadcast_global_variables", "callbacks", "ccl_built",
    "cross_rank", "cross_size", "cuda_built", "ddl_built", "elastic", "global_process_set", "gloo_built", "gloo_enabled", "init", "is_initialized",
    "load_model", "local_rank", "local_size", "mpi_built", "mpi_enabled", "mpi_threads_supported", "nccl_built", "rank",
    "reducescatter", "remove_process_set", "rocm_built", "shutdown", "size", "start_timeline", "stop_timeline",
]
