"""Rueda for JAX: collectives that work eagerly and in compiled programs, on the CPU.

    import rueda.jax as hvd
    hvd.init()                                          # ruedarun -np 4 python3 train.py
    parameters = hvd.broadcast_parameters(parameters)

    @jax.jit
    def step(parameters, state, batch):
        gradients = hvd.average_gradients(jax.grad(loss)(parameters, batch))
        ...

Within jax.jit a collective is a call of XLA that blocks no thread; docs/jax.md says what follows from that. The job is that of
`rueda`: init() and shutdown() of both are the same. Every function may be called from any thread, except that init() and shutdown()
must not run beside another function."""

from .._core._context import (cross_rank, cross_size, first_nonfinite, hosts_changed, is_initialized, local_rank, local_size, node_id,
                              rank, shutdown, size, start_timeline, stats, stop_timeline)
from .._core._errors import HorovodInternalError, RuedaError, RuedaInternalError, RuedaTimeoutError
from .._core._operations import Adasum, Average, Max, Min, Product, ReduceOp, Sum, barrier
from .._core._process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set

_OLDEST = (0, 5, 3)

try:
    import jax
except ImportError as error:
    raise ImportError("rueda.jax needs JAX, which cannot be imported; install it with: pip install 'jax>=0.5.3'") from error
if tuple(jax.__version_info__) < _OLDEST:
    raise ImportError(f"rueda.jax needs JAX 0.5.3 or later, and this is {jax.__version__}; install it with: pip install 'jax>=0.5.3'")

from . import _cluster  # noqa: E402, F401  tells JAX of ruedarun
from ._job import init, rueda_error, rueda_errors  # noqa: E402
from ._mpi import mpi_environment  # noqa: E402
from ._ops import allgather, allreduce, alltoall, broadcast, grouped_allreduce, reducescatter  # noqa: E402
from ._trees import average_gradients, broadcast_parameters  # noqa: E402

__all__ = [
    "Adasum", "Average", "HorovodInternalError", "Max", "Min", "ProcessSet", "Product", "ReduceOp", "RuedaError", "RuedaInternalError",
    "RuedaTimeoutError", "Sum", "add_process_set", "allgather", "allreduce", "alltoall", "average_gradients", "barrier", "broadcast",
    "broadcast_parameters", "cross_rank", "cross_size", "first_nonfinite", "global_process_set", "grouped_allreduce", "hosts_changed",
    "init", "is_initialized", "local_rank", "local_size", "mpi_environment", "node_id", "rank", "reducescatter", "remove_process_set",
    "rueda_error", "rueda_errors", "shutdown", "size", "start_timeline", "stats", "stop_timeline",
]
