"""Has what rueda.keras is made of where Keras is on JAX. Gradients of a compiled step are reduced within it, all in one call."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence, Union

from .. import jax as hvd
from .._core._process_sets import ProcessSet
from .._elastic._run import again_and_again
from ..common.gradients import Reducer
from ..common.job import join_job
from ._arrays import (allgather, allreduce, broadcast, broadcast_global_variables, broadcast_object, broadcast_variables,
                      reducescatter)


class Compression:
    """Lists the values that `compression=` takes: the dtype to which float32 values are rounded where they cross the network."""

    none: Optional[str] = None
    fp16: Optional[str] = "float16"
    bf16: Optional[str] = "bfloat16"


class GradientReducer(Reducer):
    """Reduces gradients by rueda.jax."""

    has_stateless_hook = True

    def reduce_together(self, gradients: Sequence[Any], name: str) -> List[Any]:
        return hvd.grouped_allreduce(list(gradients), self.op, name, self.process_set, prescale_factor=1.0 / self.predivide,
                                     postscale_factor=self.predivide, wire_dtype=self.compression)


def init(comm: Optional[Any] = None, process_sets: Union[None, str, Sequence[ProcessSet]] = None) -> None:
    """Attaches to the node's daemon and waits until every rank of the job has done so, as rueda.tensorflow.init() does."""
    join_job(comm, process_sets, hvd.init)


def cuda_built() -> bool:
    """Returns False: rueda.jax works on the CPU."""
    return False


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a training function, as rueda.tensorflow.elastic.run() does."""
    return again_and_again(func, init, lambda error: hvd.rueda_error(error))


__all__ = ["Compression", "GradientReducer", "allgather", "allreduce", "broadcast", "broadcast_global_variables", "broadcast_object",
           "broadcast_variables", "cuda_built", "init", "reducescatter", "run"]
