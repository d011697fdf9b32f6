"""DDP's communication hooks: model.register_comm_hook(state, hook). Of each, `state` is the process group that was given
to DDP, or None for that of all ranks."""

from typing import Any, Optional

import torch
import torch.distributed as dist

from .._core._operations import Average
from ._groups import group_of

# DDP looks at the annotations of a hook: they are to be neither strings nor other names.

def arena_hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket where it is, in memory that the daemon reads and writes. What DDP does without a hook is the same but
    for two things: there it divides gradients itself, in one more pass over them, and here the bucket's number is the name
    of its reduction, so that the order of a step's buckets is soon locked."""
    return _average(state, bucket, None)


def fp16_wire_hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """As arena_hook, and what goes between nodes is rounded to float16: half the bytes. Sums themselves are float32's.
    For float32 gradients; others travel as they are."""
    return _compress(state, bucket, "float16")


def bf16_wire_hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """As fp16_wire_hook, with bfloat16."""
    return _compress(state, bucket, "bfloat16")


def _compress(state: Any, bucket: dist.GradBucket, wire_dtype: str) -> torch.futures.Future[torch.Tensor]:
    return _average(state, bucket, wire_dtype if bucket.buffer().dtype == torch.float32 else None)


def _average(state: Any, bucket: dist.GradBucket, wire_dtype: Optional[str]) -> torch.futures.Future[torch.Tensor]:
    group, tensor = group_of(state), bucket.buffer()
    work = group.allreduce_by([tensor], Average, wire_dtype, f"bucket{bucket.index()}x{tensor.numel()}")
    reduced: torch.futures.Future[torch.Tensor] = work.get_future().then(lambda future: future.value()[0])
    return reduced
