"""Horovod's API for TensorFlow over Rueda.

    import rueda.tensorflow as hvd
    hvd.init()                                          # ruedarun -np 4 python3 train.py
    tape = hvd.DistributedGradientTape(tape)
    hvd.broadcast_variables(model.weights, root_rank=0)

Names, arguments and defaults are those of Horovod 0.28; docs/tensorflow.md lists what differs. It serves TensorFlow 2.15 and later.
Every function may be called from any thread, except that init() and shutdown() must not run beside another function."""

from typing import Any

from .._tensorflow import _native  # noqa: F401  (first: it says what is missing)
from .._core._context import cross_rank, cross_size, first_nonfinite, is_initialized, local_rank, local_size, rank, size
from .._core._operations import Adasum, Average, Max, Min, Product, Sum
from .._core._process_sets import ProcessSet, global_process_set
from ..common.job import (ccl_built, ddl_built, gloo_built, gloo_enabled, is_homogeneous, mpi_built, mpi_enabled,
                          mpi_threads_supported, nccl_built, rocm_built, shutdown, start_timeline, stop_timeline)
from ..common.process_sets import add_process_set, remove_process_set
from .._tensorflow._collectives import (allgather, allreduce, alltoall, barrier, broadcast, grouped_allgather, grouped_allreduce,
                                        grouped_reducescatter, join, local_rank_op, local_size_op, process_set_included_op,
                                        rank_op, reducescatter, size_op)
from .._tensorflow._compression import Compression
from .._tensorflow._errors import HorovodInternalError, HostsUpdatedInterrupt
from .._tensorflow._job import cuda_built, init
from .._tensorflow._objects import (allgather_object, broadcast_, broadcast_global_variables, broadcast_object,
                                    broadcast_object_fn, broadcast_variables)
from .._tensorflow._tape import DistributedGradientTape, PartialDistributedGradientTape
from . import elastic
from ._optimizer import DistributedOptimizer


def __getattr__(name: str) -> Any:
    if name == "SyncBatchNormalization":  # it needs Keras, which programs without Keras need not wait for
        from .sync_batch_norm import SyncBatchNormalization
        return SyncBatchNormalization
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Adasum", "Average", "Compression", "DistributedGradientTape", "DistributedOptimizer", "HorovodInternalError", "HostsUpdatedInterrupt",
    "Max", "Min", "PartialDistributedGradientTape", "ProcessSet", "Product", "Sum", "SyncBatchNormalization", "add_process_set", "allgather", "allgather_object",
    "allreduce", "alltoall", "barrier", "broadcast", "broadcast_", "broadcast_global_variables", "broadcast_object",
    "broadcast_object_fn", "broadcast_variables", "ccl_built", "cross_rank", "cross_size", "cuda_built", "ddl_built",
    "elastic", "first_nonfinite", "global_process_set", "gloo_built", "gloo_enabled", "grouped_allgather", "grouped_allreduce",
    "grouped_reducescatter", "init", "is_homogeneous", "is_initialized", "join", "local_rank", "local_rank_op", "local_size",
    "local_size_op", "mpi_built", "mpi_enabled", "mpi_threads_supported", "nccl_built", "process_set_included_op", "rank", "rank_op",
    "reducescatter", "remove_process_set", "rocm_built", "shutdown", "size", "size_op", "start_timeline", "stop_timeline",
]
