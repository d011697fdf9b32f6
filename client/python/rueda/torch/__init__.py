"""Horovod's API for PyTorch over Rueda.

    import rueda.torch as hvd
    hvd.init()                                          # ruedarun -np 4 python3 train.py
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

Names, arguments and defaults are those of Horovod 0.28; docs/horovod.md lists what differs. Tensors are on the CPU, or on a GPU
(docs/gpu.md). Every function may be called from any thread, except that init() and shutdown() must not run beside another
function."""

from . import elastic
from .._core._context import (cross_rank, cross_size, first_nonfinite, is_initialized, local_rank, local_size, rank, size)
from .._core._process_sets import ProcessSet, global_process_set
from ..common.process_sets import add_process_set, remove_process_set
from ._blocking import (allgather, allreduce, allreduce_, alltoall, broadcast, broadcast_, grouped_allgather,
                        grouped_allreduce, grouped_allreduce_, grouped_reducescatter, reducescatter)
from ._compression import Compression
from ._errors import HorovodInternalError, HostsUpdatedInterrupt
from ._job import (ccl_built, cuda_built, ddl_built, gloo_built, gloo_enabled, init, is_homogeneous, mpi_built, mpi_enabled,
                   mpi_threads_supported, nccl_built, rocm_built, shutdown, start_timeline, stop_timeline)
from ._objects import allgather_object, broadcast_object, broadcast_optimizer_state, broadcast_parameters
from ._ops import (allgather_async, allreduce_async, allreduce_async_, alltoall_async, barrier, broadcast_async,
                   broadcast_async_, grouped_allgather_async, grouped_allreduce_async, grouped_allreduce_async_,
                   grouped_reducescatter_async, join, poll, reducescatter_async, synchronize)
from ._optimizer import DistributedOptimizer
from ._reductions import Adasum, Average, Max, Min, Product, Sum
from ._sparse import sparse_allreduce_async
from ._sync_batch_norm import SyncBatchNorm

__all__ = [
    "Adasum", "Average", "Compression", "DistributedOptimizer", "HorovodInternalError", "HostsUpdatedInterrupt",
    "Max", "Min", "ProcessSet", "Product", "Sum", "SyncBatchNorm", "add_process_set", "allgather", "allgather_async",
    "allgather_object", "allreduce", "allreduce_", "allreduce_async", "allreduce_async_", "alltoall",
    "alltoall_async", "barrier", "broadcast", "broadcast_", "broadcast_async", "broadcast_async_", "broadcast_object",
    "broadcast_optimizer_state", "broadcast_parameters", "ccl_built", "cross_rank", "cross_size", "cuda_built",
    "ddl_built", "elastic", "first_nonfinite", "global_process_set", "gloo_built", "gloo_enabled", "grouped_allgather",
    "grouped_allgather_async", "grouped_allreduce", "grouped_allreduce_", "grouped_allreduce_async",
    "grouped_allreduce_async_", "grouped_reducescatter", "grouped_reducescatter_async", "init", "is_homogeneous",
    "is_initialized", "join", "local_rank", "local_size", "mpi_built", "mpi_enabled", "mpi_threads_supported",
    "nccl_built", "poll", "rank", "reducescatter", "reducescatter_async", "remove_process_set", "rocm_built",
    "shutdown", "size", "sparse_allreduce_async", "start_timeline", "stop_timeline", "synchronize",
]
