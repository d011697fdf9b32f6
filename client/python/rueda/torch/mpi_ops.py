"""Offers the names of horovod.torch.mpi_ops: the collectives, and the job."""

from .._core._context import cross_rank, cross_size, is_initialized, local_rank, local_size, rank, size
from .._core._process_sets import ProcessSet, global_process_set
from ..common.exceptions import HorovodInternalError
from ..common.process_sets import add_process_set, remove_process_set
from ._blocking import (allgather, allreduce, allreduce_, alltoall, broadcast, broadcast_, grouped_allgather,
                        grouped_allreduce, grouped_allreduce_, grouped_reducescatter, reducescatter)
from ._compression import Compression
from ._job import (ccl_built, cuda_built, ddl_built, gloo_built, gloo_enabled, init, is_homogeneous, mpi_built, mpi_enabled,
                   mpi_threads_supported, nccl_built, rocm_built, shutdown, start_timeline, stop_timeline)
from ._ops import (allgather_async, allreduce_async, allreduce_async_, alltoall_async, barrier, broadcast_async,
                   broadcast_async_, grouped_allgather_async, grouped_allreduce_async, grouped_allreduce_async_,
                   grouped_reducescatter_async, join, poll, reducescatter_async, synchronize)
from ._reductions import Adasum, Average, Max, Min, Product, Sum
from ._sparse import sparse_allreduce_async

__all__ = [
    "Adasum", "Average", "Compression", "HorovodInternalError", "Max", "Min", "ProcessSet", "Product", "Sum",
    "add_process_set", "allgather", "allgather_async", "allreduce", "allreduce_", "allreduce_async", "allreduce_async_",
    "alltoall", "alltoall_async", "barrier", "broadcast", "broadcast_", "broadcast_async", "broadcast_async_", "ccl_built",
    "cross_rank", "cross_size", "cuda_built", "ddl_built", "global_process_set", "gloo_built", "gloo_enabled",
    "grouped_allgather", "grouped_allgather_async", "grouped_allreduce", "grouped_allreduce_", "grouped_allreduce_async",
    "grouped_allreduce_async_", "grouped_reducescatter", "grouped_reducescatter_async", "init", "is_homogeneous",
    "is_initialized", "join", "local_rank", "local_size", "mpi_built", "mpi_enabled", "mpi_threads_supported", "nccl_built",
    "poll", "rank", "reducescatter", "reducescatter_async", "remove_process_set", "rocm_built", "shutdown", "size",
    "sparse_allreduce_async", "start_timeline", "stop_timeline", "synchronize",
]
