"""Makes gradients smaller before they are submitted."""

from __future__ import annotations

from typing import Any

import torch


class Compressor:
    """The base of compressions. compress() returns what is submitted, and what decompress() needs to undo it."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> "tuple[torch.Tensor, Any]":
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Leaves tensors as they are."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> "tuple[torch.Tensor, Any]":
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor


class _CastCompressor(Compressor):
    """Rounds float32 and float64 to a type of 16 bits; other dtypes stay as they are. The context is the original dtype."""

    dtype: torch.dtype

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> "tuple[torch.Tensor, Any]":  # type: ignore[override]
        is_larger = tensor.dtype in (torch.float32, torch.float64)
        return (tensor.to(cls.dtype) if is_larger else tensor), tensor.dtype

    @classmethod
    def decompress(cls, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:  # type: ignore[override]
        return tensor.to(ctx)


class FP16Compressor(_CastCompressor):
    """Rounds to float16."""

    dtype = torch.float16


class BF16Compressor(_CastCompressor):
    """Rounds to bfloat16, which has float32's range with fewer digits."""

    dtype = torch.bfloat16


class Compression:
    """Lists the values that `compression=` takes."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
