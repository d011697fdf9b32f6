"""Rueda averages gradients for data-parallel training as a service of the node.

    import rueda
    rueda.init()                                        # ruedarun -np 4 python3 program.py
    gradient = rueda.empty((1024,), "float32")          # memory that the daemon reads where it is
    average = rueda.allreduce(gradient, name="gradient")

Function names are Horovod's. Failed operations raise RuedaError (with .code) or one of its subclasses; arguments that are wrong
before anything was submitted raise ValueError or TypeError. Every function may be called from any thread, except that init() and
shutdown() must not run beside another function. A forked child of an initialised process cannot use the library."""

from typing import Any

from ._core._context import (DeviceStats, Nonfinite, Stats, cross_rank, cross_size, device_stats, first_nonfinite, hosts_changed, init,
                             is_initialized, local_rank, local_size, node_id, rank, shutdown, size, start_timeline, stats,
                             stop_timeline)
from ._core._errors import HorovodInternalError, RuedaError, RuedaInternalError, RuedaTimeoutError
from ._core._grouped import (grouped_allgather, grouped_allgather_async, grouped_reducescatter,
                             grouped_reducescatter_async)
from ._core._memory import empty
from ._core._objects import allgather_object, broadcast_object
from ._core._operations import (Adasum, Average, Max, Min, Product, ReduceOp, Sum, allreduce, allreduce_,
                                allreduce_async, allreduce_async_, barrier, broadcast, broadcast_,
                                broadcast_async, broadcast_async_, grouped_allreduce,
                                grouped_allreduce_, grouped_allreduce_async, grouped_allreduce_async_, join, poll, synchronize)
from ._core._parts import (allgather, allgather_async, alltoall, alltoall_async, gather, gather_async, reduce,
                           reduce_async, reducescatter, reducescatter_async, scatter, scatter_async)
from ._core._plans import PlannedTensor, declare_plan
from ._core._process_sets import (ProcessSet, add_process_set, global_process_set,
                                  remove_process_set)
from ._core._transfers import ANY_SOURCE, cancel, recv, recv_async, send, send_async

__version__ = "0.1.0"

__all__ = [
    "ANY_SOURCE", "Adasum", "Average", "DeviceStats", "HorovodInternalError", "Max", "Min", "Nonfinite", "PlannedTensor", "ProcessSet", "Product",
    "ReduceOp", "RuedaError", "RuedaInternalError", "RuedaTimeoutError", "Stats", "Sum", "add_process_set", "allgather",
    "allgather_async", "allgather_object", "alltoall", "alltoall_async", "allreduce", "allreduce_",
    "allreduce_async", "allreduce_async_", "barrier", "broadcast", "broadcast_", "broadcast_async",
    "broadcast_async_", "broadcast_object", "cancel", "cross_rank", "cross_size", "declare_plan", "device_stats", "empty", "first_nonfinite",
    "hosts_changed",
    "gather", "gather_async", "global_process_set", "grouped_allgather", "grouped_allgather_async", "grouped_allreduce",
    "grouped_allreduce_", "grouped_allreduce_async", "grouped_allreduce_async_", "grouped_reducescatter",
    "grouped_reducescatter_async", "init", "is_initialized", "join", "local_rank", "local_size", "node_id", "poll", "rank",
    "recv", "recv_async", "reduce", "reduce_async", "reducescatter", "reducescatter_async", "remove_process_set", "scatter",
    "scatter_async", "send", "send_async", "shutdown", "size", "start_timeline", "stats", "stop_timeline", "synchronize",
]


def __getattr__(name: str) -> Any:
    if name == "bfloat16":
        try:
            import ml_dtypes
            import numpy
        except ImportError:
            raise AttributeError("rueda.bfloat16 needs the package ml_dtypes; without it keep the bits in a "
                                 "uint16 array and pass dtype=\"bfloat16\"") from None
        return numpy.dtype(ml_dtypes.bfloat16)
    raise AttributeError(f"module 'rueda' has no attribute {name!r}")
