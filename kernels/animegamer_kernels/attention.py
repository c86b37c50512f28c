"""Attention with heads of 64: with INT8 queries and keys, from `head_norm_int8`, or 16-bit ones, from `head_norm`.

Source: MODEL.md section 4; kernels/csrc/animegamer_kernels.h has the contract.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum

from .arrays import Array, Dtype, SameDevice, dtype_of
from .errors import KernelError
from .heads import Int8Outputs
from .library import Arguments, Library

HEAD_WIDTH = 64
"""The only supported head width."""


class MmaKind(IntEnum):
    """The tensor core instructions to use, enum agk_products.

    WARPS: mma.sync with float32 accumulators, on any GPU. HALF_SUMS: mma.sync with float16 accumulators for P V, on any
    GPU. WARPGROUPS: wgmma, on sm_90 only.
    """

    WARPS = 0
    HALF_SUMS = 1
    WARPGROUPS = 2


class AttentionInt8Arguments(Arguments):
    """struct agk_attention_int8_args."""

    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("dtype", ctypes.c_int32),
        *((name, ctypes.c_int64) for name in ("batch", "tokens", "heads", "head_width")),
        *((name, ctypes.c_void_p) for name in ("query", "key", "query_scales", "key_scales")),
        *((name, ctypes.c_int64) for name in ("query_group", "key_group")),
        ("value", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("batch_stride", "token_stride", "head_stride")),
        ("out", ctypes.c_void_p),
        ("products", ctypes.c_int32),
    ]


class AttentionArguments(Arguments):
    """struct agk_attention_args."""

    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("dtype", ctypes.c_int32),
        *((name, ctypes.c_int64) for name in ("batch", "tokens", "heads", "head_width")),
        *((name, ctypes.c_void_p) for name in ("query", "key", "value")),
        *((name, ctypes.c_int64) for name in ("batch_stride", "token_stride", "head_stride")),
        ("out", ctypes.c_void_p),
    ]


def attention(library: Library, query: Array, key: Array, value: Array, out: Array, stream: int = 0) -> None:
    """softmax(query key^T / 8) value over all tokens, into out [B, S, heads, 64]. On a GPU: sm_90 only.

    query, key, value: float16 or bfloat16 [B, S, heads, 64], all with the strides of value, so views qkv[:, :, i] of
    [B, S, 3, heads, 64] are accepted. Scores are float32. Raises KernelError.
    """
    device, sizes, strides = _strided(value)
    for what, other in (("query", query), ("key", key)):
        if tuple(other.stride()) != strides:
            found, expected = tuple(other.stride()), f"{strides}, as value"
            raise KernelError("strides differ", where=what, found=found, expected=expected)
    dtype, arrays = dtype_of(value), {"query": query, "key": key, "value": value}
    arguments = AttentionArguments(
        0,
        dtype,
        *sizes,
        *(device.strided_address(what, array, sizes, dtype) for what, array in arrays.items()),
        *strides[:-1],
        device.address("out", out, sizes, dtype),
    )
    library.run("attention", arguments, device.stream(stream))


def _strided(value: Array) -> tuple[SameDevice, tuple[int, ...], tuple[int, ...]]:
    """Device, sizes [B, S, heads, width] and strides of a value. Raises KernelError for another shape."""
    sizes, strides = tuple(value.shape), tuple(value.stride())
    if len(sizes) != 4 or strides[-1] != 1:
        raise KernelError(
            "wrong shape",
            where="value",
            found=f"{sizes}, strides {strides}",
            expected="[B, S, heads, 64]",
        )
    return SameDevice(value), sizes, strides


def attention_int8(
    library: Library,
    heads: Int8Outputs,
    value: Array,
    out: Array,
    query_group: int,
    key_group: int,
    mma: MmaKind = MmaKind.WARPS,
    stream: int = 0,
) -> None:
    """softmax(query key^T / 8) value over all tokens, into out [B, S, heads, 64] of value's dtype.

    heads: the outputs of `head_norm_int8` with the same groups; key_group must be a multiple of 64.
    value: float16 or bfloat16 [B, S, heads, 64]. The last axis must be contiguous, the other strides a multiple of 16
    bytes, so a view qkv[:, :, 2] of [B, S, 3, heads, 64] is accepted.
    mma: HALF_SUMS keeps the weights, the values and the sums of each 64 keys in float16, at twice the rate on GeForce.
    NaN scales propagate. Raises KernelError.
    """
    device, sizes, strides = _strided(value)
    batch, tokens, count, width = sizes
    rows, dtype = (batch, count), dtype_of(value)
    groups = [-(-tokens // max(1, group)) for group in (query_group, key_group)]
    arguments = AttentionInt8Arguments(
        0,
        dtype,
        batch,
        tokens,
        count,
        width,
        device.address("query", heads.query, (*rows, tokens, width), Dtype.I8),
        device.address("key", heads.key, (*rows, tokens, width), Dtype.I8),
        device.address("query_scales", heads.query_scales, (*rows, groups[0]), Dtype.F32),
        device.address("key_scales", heads.key_scales, (*rows, groups[1]), Dtype.F32),
        query_group,
        key_group,
        device.strided_address("value", value, sizes, dtype),
        *strides[:-1],
        device.address("out", out, sizes, dtype),
        mma,
    )
    library.run("attention_int8", arguments, device.stream(stream))
