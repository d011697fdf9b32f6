"""DDP's communication hooks: model.register_comm_hook(state, hook). Of each, `state` is the process group that was given
to DDP, or None for that of all ranks."""

import weakref
from typing import Any, Dict, Optional

import torch
import torch.distributed as dist

from .._operations import Average
from ..torch._tensors import empty_in_arena
from ._groups import group_of

# DDP looks at the annotations of a hook: they are to be neither strings nor other names.

# A bucket's copy in shared memory, by its first parameter, as long as that lives. DDP makes its buckets anew after the
# first step.
_copies: Dict[int, torch.Tensor] = {}


def arena_hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket in memory that the daemon reads and writes where it is: gradients are copied into it, and DDP
    takes the result from there, where without the hook librueda copies in and out once more. The bucket's number is the
    name of its reduction, so that the order of a step's buckets is soon locked."""
    copy = _copy_of(bucket)
    copy.copy_(bucket.buffer())
    return _average(state, bucket, copy, None)


def fp16_wire_hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """As arena_hook, and what goes between nodes is rounded to float16: half the bytes. Sums themselves are float32's.
    For float32 gradients; others travel as they are."""
    return _compress(state, bucket, "float16")


def bf16_wire_hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """As fp16_wire_hook, with bfloat16."""
    return _compress(state, bucket, "bfloat16")


def _compress(state: Any, bucket: dist.GradBucket, wire_dtype: str) -> torch.futures.Future[torch.Tensor]:
    copy = _copy_of(bucket)
    copy.copy_(bucket.buffer())
    return _average(state, bucket, copy, wire_dtype if copy.dtype == torch.float32 else None)


def _average(state: Any, bucket: dist.GradBucket, tensor: torch.Tensor,
             wire_dtype: Optional[str]) -> torch.futures.Future[torch.Tensor]:
    group = group_of(state)
    work = group.allreduce_by([tensor], Average, wire_dtype, f"bucket{bucket.index()}x{tensor.numel()}")
    reduced: torch.futures.Future[torch.Tensor] = work.get_future().then(lambda future: future.value()[0])
    return reduced


def _copy_of(bucket: dist.GradBucket) -> torch.Tensor:
    buffer = bucket.buffer()
    first = bucket.parameters()[0]
    key = id(first)
    copy = _copies.get(key)
    if copy is None:
        weakref.finalize(first, lambda: _copies.pop(key, None))
    if copy is None or copy.shape != buffer.shape or copy.dtype != buffer.dtype:
        copy = _copies[key] = empty_in_arena(buffer.shape, buffer.dtype)
    return copy
