"""Attention whose scores are products of INT8 queries and keys, from what `head_norm_int8` writes.

Source: MODEL.md section 4; kernels/csrc/animegamer_kernels.h has the contract.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum

from .arrays import Array, Dtype, Room, dtype_of
from .errors import KernelError
from .heads import Int8Outputs
from .library import Arguments, Library

HEAD_WIDTH, KEYS_A_TIME = 64, 64
"""What it is written for: `head_norm_int8` has to have given a scale to a multiple of so many keys."""


class Products(IntEnum):
    """By which instructions, enum agk_products: any GPU's; any GPU's with sums in float16; those of sm_90 alone."""

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


def attention_int8(
    library: Library,
    heads: Int8Outputs,
    value: Array,
    out: Array,
    query_group: int,
    key_group: int,
    products: Products = Products.WARPS,
    stream: int = 0,
) -> None:
    """softmax(query key^T / 8) value over all tokens into out [B, S, heads, 64], float16 or bfloat16 as value is.

    heads: as `head_norm_int8` wrote them with these groups; key_group a multiple of 64. value [B, S, heads, 64] with
    any strides of whole 16 bytes, a head's elements together: the product's own [B, S, 3, heads, 64][:, :, 2] will do.
    A NaN scale makes NaN of what it reaches. products: HALF_SUMS has weights, values and sums of 64 keys in float16, at
    twice the rate on GeForce. Raises KernelError. Streams: norm_modulate.
    """
    room, sizes, strides = Room(value), tuple(value.shape), tuple(value.stride())
    if len(sizes) != 4 or strides[-1] != 1:
        raise KernelError(
            "an array of another shape",
            where="value",
            found=f"{sizes}, strides {strides}",
            expected="[B, S, heads, 64]",
        )
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
        room.address("query", heads.query, (*rows, tokens, width), Dtype.I8),
        room.address("key", heads.key, (*rows, tokens, width), Dtype.I8),
        room.address("query_scales", heads.query_scales, (*rows, groups[0]), Dtype.F32),
        room.address("key_scales", heads.key_scales, (*rows, groups[1]), Dtype.F32),
        query_group,
        key_group,
        room.strided("value", value, sizes, dtype),
        *strides[:-1],
        room.address("out", out, sizes, dtype),
        products,
    )
    library.run("attention_int8", arguments, room.stream(stream))
