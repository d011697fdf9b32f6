"""Makes gradients smaller before they are submitted."""

from __future__ import annotations

from typing import Any, Tuple

import tensorflow as tf


class Compressor:
    """The base of compressions. compress() returns what is submitted, and what decompress() needs to undo it."""

    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Leaves tensors as they are."""

    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor


class _CastCompressor(Compressor):
    """Rounds float32 and float64 to a type of 16 bits; other dtypes stay as they are. The context is the original dtype."""

    dtype: Any

    @classmethod
    def compress(cls, tensor: Any) -> Tuple[Any, Any]:  # type: ignore[override]
        is_larger = tensor.dtype in (tf.float32, tf.float64)
        return (tf.cast(tensor, cls.dtype) if is_larger else tensor), tensor.dtype

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:  # type: ignore[override]
        return tf.cast(tensor, ctx)


class FP16Compressor(_CastCompressor):
    """Rounds to float16."""

    dtype = tf.float16


class BF16Compressor(_CastCompressor):
    """Rounds to bfloat16, which has float32's range with fewer digits."""

    dtype = tf.bfloat16


class Compression:
    """Lists the values that `compression=` takes."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
