"""Offers the names of horovod.torch.optimizer."""

from ._optimizer import DistributedOptimizer

__all__ = ["DistributedOptimizer"]
