"""Has what rueda.keras is made of where Keras is on PyTorch. Gradients are reduced when the backward pass has ended."""

from __future__ import annotations

from typing import Any, List, Sequence

from .. import torch as hvd
from ..common.gradients import Reducer
from ..torch import Compression, broadcast_object, cuda_built, init
from ..torch.elastic import run
from ._arrays import allgather, allreduce, broadcast, broadcast_global_variables, broadcast_variables, reducescatter


class GradientReducer(Reducer):
    """Reduces gradients by rueda.torch."""

    def reduce_together(self, gradients: Sequence[Any], name: str) -> List[Any]:
        pairs = [self.compression.compress(gradient) for gradient in gradients]
        reduced = hvd.grouped_allreduce([pair[0] for pair in pairs], name=name, op=self.op, prescale_factor=1.0 / self.predivide,
                                        postscale_factor=self.predivide, process_set=self.process_set)
        return [self.compression.decompress(one, context) for one, (_, context) in zip(reduced, pairs)]


__all__ = ["Compression", "GradientReducer", "allgather", "allreduce", "broadcast", "broadcast_global_variables", "broadcast_object",
           "broadcast_variables", "cuda_built", "init", "reducescatter", "run"]
