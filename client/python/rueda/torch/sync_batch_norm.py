"""Offers the names of horovod.torch.sync_batch_norm."""

from ._sync_batch_norm import SyncBatchNorm

__all__ = ["SyncBatchNorm"]
