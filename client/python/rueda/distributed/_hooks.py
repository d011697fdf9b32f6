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

# A bucket's memory in the arena, by its first parameter, as long as that lives. DDP makes its buckets anew after the first
# step.
_memory: Dict[int, torch.Tensor] = {}


def arena_hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket in memory that the daemon reads and writes where it is. With gradient_as_bucket_view=True the bucket
    moves there: its gradients are computed in that memory, averaged in place, and never copied. Without it, gradients are
    copied into that memory, and DDP takes the result from there, where without the hook librueda copies in and out once more.
    The bucket's number is the name of its reduction, so that the order of a step's buckets is soon locked.

    Do not keep views of gradients from before the first steps: those of a bucket that has moved are of its old memory."""
    return _average(state, bucket, _in_arena(bucket), None)


def fp16_wire_hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """As arena_hook, and what goes between nodes is rounded to float16: half the bytes. Sums themselves are float32's.
    For float32 gradients; others travel as they are."""
    return _compress(state, bucket, "float16")


def bf16_wire_hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """As fp16_wire_hook, with bfloat16."""
    return _compress(state, bucket, "bfloat16")


def _compress(state: Any, bucket: dist.GradBucket, wire_dtype: str) -> torch.futures.Future[torch.Tensor]:
    tensor = _in_arena(bucket)
    return _average(state, bucket, tensor, wire_dtype if tensor.dtype == torch.float32 else None)


def _average(state: Any, bucket: dist.GradBucket, tensor: torch.Tensor,
             wire_dtype: Optional[str]) -> torch.futures.Future[torch.Tensor]:
    group = group_of(state)
    work = group.allreduce_by([tensor], Average, wire_dtype, f"bucket{bucket.index()}x{tensor.numel()}")
    reduced: torch.futures.Future[torch.Tensor] = work.get_future().then(lambda future: future.value()[0])
    return reduced


def _in_arena(bucket: dist.GradBucket) -> torch.Tensor:
    """The bucket's contents in the arena: the bucket itself, once it has moved there, or a copy."""
    buffer = bucket.buffer()
    memory = _memory_of(bucket)
    if buffer.data_ptr() != memory.data_ptr():
        memory.copy_(buffer)
        _move(bucket, memory)
    return memory


def _memory_of(bucket: dist.GradBucket) -> torch.Tensor:
    buffer = bucket.buffer()
    first, *others = bucket.parameters()
    key = id(first)
    memory = _memory.get(key)
    if memory is None:
        weakref.finalize(first, lambda: _memory.pop(key, None))
    if memory is None or memory.shape != buffer.shape or memory.dtype != buffer.dtype:
        memory = _memory[key] = empty_in_arena(buffer.shape, buffer.dtype)
        for parameter in others:  # buckets that began with one of them are no more
            _memory.pop(id(parameter), None)
    return memory


def _move(bucket: dist.GradBucket, memory: torch.Tensor) -> None:
    """Lets the bucket's tensor, and the gradients that are views of it, be of `memory`, if each of them can be reached: where
    gradients are no views, DDP alone has those that are."""
    buffer = bucket.buffer()
    gradients = [parameter.grad for parameter in bucket.parameters()]
    if buffer.storage_offset() != 0 or any(one is None or _storage(one) != _storage(buffer) for one in gradients):
        return
    for gradient in gradients:
        gradient.data = memory.as_strided(gradient.size(), gradient.stride(), gradient.storage_offset())
    buffer.data = memory


def _storage(tensor: torch.Tensor) -> int:
    """Its address; PyTorch 2 has the function under another name, and warns of 1.13's."""
    address: int = getattr(tensor, "untyped_storage", tensor.storage)().data_ptr()
    return address
