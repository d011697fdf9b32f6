"""Implements batch normalisation over the batches of all ranks."""

from __future__ import annotations

import itertools
from typing import Any, Optional

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from .._core import _context
from .._core._operations import Sum
from . import _ops

_numbers = itertools.count()


def _summed(values: torch.Tensor, name: str) -> torch.Tensor:
    return _ops.synchronize(_ops.allreduce_async_(values, None, name, Sum))


def _by_channel(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return values.to(like.dtype).view(1, -1, *[1] * (like.dim() - 2))


def _exact(values: torch.Tensor) -> torch.Tensor:
    """Returns values of fewer bits as float32: a mean that is rounded to fewer bits would be off by more than the values differ.
    """
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


class _Normalize(Function):
    """Normalizes. Sums are float64, so that the square's mean less the mean's square is exact enough."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, weight: Optional[torch.Tensor], bias: Optional[torch.Tensor],
                eps: float, name: str) -> Any:
        channels = values.shape[1]
        dims = [0, *range(2, values.dim())]
        wide = values.double()
        count = torch.tensor([float(values.numel() // channels if channels else 0)], dtype=torch.float64)
        sums = _summed(torch.cat([count, wide.sum(dims), (wide * wide).sum(dims)]), name)
        total = sums[0]
        divisor = total.clamp(min=1)  # all ranks together may have no rows
        mean = sums[1:channels + 1] / divisor
        variance = (sums[channels + 1:] / divisor - mean * mean).clamp_(min=0)
        scale = (variance + eps).rsqrt()
        exact = _exact(values)
        normal = (exact - _by_channel(mean, exact)) * _by_channel(scale, exact)
        ctx.save_for_backward(normal, weight, scale, divisor)
        ctx.name, ctx.dims = name, dims
        ctx.bias_dtype = None if bias is None else bias.dtype
        ctx.mark_non_differentiable(mean, variance, total)
        result = normal
        if weight is not None:
            result = result * _by_channel(weight, normal)
        if bias is not None:
            result = result + _by_channel(bias, normal)
        result = result.to(values.dtype)
        return (result.clone() if result is normal else result), mean, variance, total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor, *_: Any) -> Any:  # type: ignore[override]
        normal, weight, scale, divisor = ctx.saved_tensors
        channels = len(scale)
        exact = _exact(gradient)
        own = torch.cat([exact.double().sum(ctx.dims), (exact * normal).double().sum(ctx.dims)])
        means = _summed(own.clone(), f"{ctx.name}.gradient") / divisor
        inner = exact - _by_channel(means[:channels], exact) - normal * _by_channel(means[channels:], exact)
        factor = scale if weight is None else scale * weight
        needs = ctx.needs_input_grad
        return ((inner * _by_channel(factor, exact)).to(gradient.dtype),
                own[channels:].to(weight.dtype) if needs[1] else None,
                own[:channels].to(ctx.bias_dtype) if needs[2] else None, None, None)


class SyncBatchNorm(_BatchNorm):
    """A torch.nn.BatchNorm whose mean and variance are those of the batches of all ranks together, in training.

    The input is (N, C, ...); ranks may have different N, also 0. All ranks make their modules in the same order."""

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: Optional[float] = 0.1, affine: bool = True,
                 track_running_stats: bool = True) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self._name = f"sync_batch_norm.{next(_numbers)}"

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(input)
        uses_batch = self.training or self.running_mean is None
        if not uses_batch or not _context.is_initialized() or _context.size() == 1:
            return super().forward(input)
        result, mean, variance, total = _Normalize.apply(input, self.weight, self.bias, self.eps, self._name)
        if self.training and self.track_running_stats and total > 0:
            assert self.num_batches_tracked is not None
            self.num_batches_tracked.add_(1)
            factor = self.momentum if self.momentum is not None else 1.0 / float(self.num_batches_tracked)
            with torch.no_grad():
                unbiased = variance * (total / (total - 1).clamp(min=1))
                self.running_mean.lerp_(mean.to(self.running_mean.dtype), factor)
                self.running_var.lerp_(unbiased.to(self.running_var.dtype), factor)
        return result
