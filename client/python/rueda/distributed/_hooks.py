"""Implements DDP's communication hooks: model.register_comm_hook(state, hook). The `state` of each is the process group that was
given to DDP, or None for that of all ranks."""

from typing import Any, Optional

import torch
import torch.distributed as dist

from .._core._operations import Average
from ._groups import group_of

# DDP checks the annotations of a hook, which may be neither strings nor other names.

def arena_hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket where it is, in memory that the daemon reads and writes.

    DDP without a hook does the same with two differences: there it divides gradients itself, in one more pass over them, and here
    the bucket's number is the name of its reduction, so that the order of a step's buckets is soon locked.

    Args:
        state: the process group, or None for that of all ranks.
        bucket: the bucket.

    Returns:
        The future of the averaged bucket.
    """
    return _average(state, bucket, None)


def fp16_wire_hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Does what arena_hook() does, and rounds what goes between nodes to float16: half the bytes. The sums themselves are
    float32. Gradients of other dtypes are not rounded.

    Args:
        state, bucket: as for arena_hook().

    Returns:
        The future of the averaged bucket.
    """
    return _compress(state, bucket, "float16")


def bf16_wire_hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Does what fp16_wire_hook() does, with bfloat16.

    Args:
        state, bucket: as for arena_hook().

    Returns:
        The future of the averaged bucket.
    """
    return _compress(state, bucket, "bfloat16")


def _compress(state: Any, bucket: dist.GradBucket, wire_dtype: str) -> torch.futures.Future[torch.Tensor]:
    return _average(state, bucket, wire_dtype if bucket.buffer().dtype == torch.float32 else None)


def _average(state: Any, bucket: dist.GradBucket, wire_dtype: Optional[str]) -> torch.futures.Future[torch.Tensor]:
    group, tensor = group_of(state), bucket.buffer()
    work = group.allreduce_by([tensor], Average, wire_dtype, f"bucket{bucket.index()}x{tensor.numel()}")
    reduced: torch.futures.Future[torch.Tensor] = work.get_future().then(lambda future: future.value()[0])
    return reduced
