"""What horovod.torch.optimizer has."""

from ._optimizer import DistributedOptimizer

__all__ = ["DistributedOptimizer"]
