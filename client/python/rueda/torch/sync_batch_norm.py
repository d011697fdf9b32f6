"""What horovod.torch.sync_batch_norm has."""

from ._sync_batch_norm import SyncBatchNorm

__all__ = ["SyncBatchNorm"]
