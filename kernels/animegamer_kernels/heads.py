"""LayerNorm of every head of queries and keys with the layout of attention, in the activations' dtype or INT8.

It does not know attention. Source: MODEL.md section 4; kernels/csrc/animegamer_kernels.h has the contract.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from .arrays import Array, Dtype, Room, dtype_of
from .errors import KernelError
from .library import Arguments, Library


class HeadsStruct(ctypes.Structure):
    """struct agk_heads."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("batch", "tokens", "heads", "head_width")),
        *((name, ctypes.c_void_p) for name in ("qkv", "query_weight", "query_bias", "key_weight", "key_bias")),
        ("epsilon", ctypes.c_float),
        ("dtype", ctypes.c_int32),
    ]


class HeadNormArguments(Arguments):
    """struct agk_head_norm_args."""

    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("shape", HeadsStruct),
        *((name, ctypes.c_void_p) for name in ("query", "key", "value")),
        *((name, ctypes.c_int64) for name in ("batch_stride", "token_stride", "head_stride")),
    ]


class HeadNormInt8Arguments(Arguments):
    """struct agk_head_norm_int8_args."""

    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("shape", HeadsStruct),
        *((name, ctypes.c_void_p) for name in ("query", "key", "query_scales", "key_scales", "key_mean", "workspace")),
        *((name, ctypes.c_int64) for name in ("workspace_bytes", "query_group", "key_group")),
    ]


@dataclass(frozen=True, slots=True)
class Heads:
    """qkv [B, S, 3, heads, width] and the two LayerNorms over `width`, float32 [width] each."""

    qkv: Array
    query_weight: Array
    query_bias: Array
    key_weight: Array
    key_bias: Array
    epsilon: float

    def struct(self, room: Room) -> HeadsStruct:
        """Raises KernelError if the arrays do not fit each other."""
        sizes = tuple(self.qkv.shape)
        if len(sizes) != 5 or sizes[2] != 3:
            raise KernelError("an array of another shape", where="qkv", found=sizes, expected="[B, S, 3, heads, width]")
        batch, tokens, _, heads, width = sizes
        dtype = dtype_of(self.qkv)
        vectors = ("query_weight", "query_bias", "key_weight", "key_bias")
        return HeadsStruct(
            batch,
            tokens,
            heads,
            width,
            room.address("qkv", self.qkv, sizes, dtype),
            *(room.address(name, getattr(self, name), (width,), Dtype.F32) for name in vectors),
            self.epsilon,
            dtype,
        )


def head_norm(
    library: Library, given: Heads, query: Array, key: Array, value: Array | None = None, stream: int = 0
) -> None:
    """Normalised queries and keys, and the values as they are if asked, to [B, S, heads, width] of any one stride.

    A head's elements lie together; the other strides are free and the same for all, so a transposed [B, heads, S,
    width] will do, and so will qkv[:, :, 0] and qkv[:, :, 1] themselves. Raises KernelError. Streams: norm_modulate.
    """
    room = Room(given.qkv)
    shape = given.struct(room)
    sizes, strides = (shape.batch, shape.tokens, shape.heads, shape.head_width), tuple(query.stride())
    addresses = []
    for name, array in (("query", query), ("key", key), ("value", value)):
        if array is not None and (tuple(array.stride()) != strides or strides[-1] != 1):
            raise KernelError("strides that differ", where=name, found=array.stride(), expected=(*strides[:-1], 1))
        addresses.append(room.strided(name, array, sizes, dtype_of(given.qkv)))
    library.run("head_norm", HeadNormArguments(0, shape, *addresses, *strides[:-1]), room.stream(stream))


@dataclass(frozen=True, slots=True)
class Int8Outputs:
    """int8 [B, heads, S, width] and float32 scales [B, heads, groups], one for ceil(S / groups) tokens or fewer.

    key_mean float32 [B, heads, width] is what was taken off the keys. workspace: bytes, as `int8_workspace` says.
    """

    query: Array
    key: Array
    query_scales: Array
    key_scales: Array
    key_mean: Array
    workspace: Array


def int8_workspace(library: Library, given: Heads) -> int:
    """Bytes of working memory of `head_norm_int8`."""
    return library.workspace("head_norm_int8", given.struct(Room(given.qkv)))


def head_norm_int8(
    library: Library, given: Heads, out: Int8Outputs, query_group: int, key_group: int, stream: int = 0
) -> None:
    """Normalised queries, and keys less their mean, in INT8 with a scale for so many tokens of a head.

    value = int8 * scale. Raises KernelError. Streams: norm_modulate.
    """
    room = Room(given.qkv)
    shape = given.struct(room)
    rows = (shape.batch, shape.heads)
    codes, mean = (*rows, shape.tokens, shape.head_width), (*rows, shape.head_width)
    arguments = HeadNormInt8Arguments(
        0,
        shape,
        room.address("query", out.query, codes, Dtype.I8),
        room.address("key", out.key, codes, Dtype.I8),
        room.address("query_scales", out.query_scales, (*rows, -(-shape.tokens // query_group)), Dtype.F32),
        room.address("key_scales", out.key_scales, (*rows, -(-shape.tokens // key_group)), Dtype.F32),
        room.address("key_mean", out.key_mean, mean, Dtype.F32),
        room.address("workspace", out.workspace, tuple(out.workspace.shape), Dtype.U8),
        out.workspace.shape[0],
        query_group,
        key_group,
    )
    library.run("head_norm_int8", arguments, room.stream(stream))
