"""LayerNorm of every head of queries and keys, written in the activations' dtype or in INT8 for attention.

Source: MODEL.md section 4; kernels/csrc/animegamer_kernels.h has the contract.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from .arrays import Array, Dtype, SameDevice, dtype_of
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
    """qkv [B, S, 3, heads, width] and the LayerNorms of queries and keys over `width`.

    Weights and biases are float32 [width].
    """

    qkv: Array
    query_weight: Array
    query_bias: Array
    key_weight: Array
    key_bias: Array
    epsilon: float

    def struct(self, device: SameDevice) -> HeadsStruct:
        """The C struct. Raises KernelError if the arrays do not match."""
        sizes = tuple(self.qkv.shape)
        if len(sizes) != 5 or sizes[2] != 3:
            raise KernelError("wrong shape", where="qkv", found=sizes, expected="[B, S, 3, heads, width]")
        batch, tokens, _, heads, width = sizes
        dtype = dtype_of(self.qkv)
        vectors = ("query_weight", "query_bias", "key_weight", "key_bias")
        return HeadsStruct(
            batch,
            tokens,
            heads,
            width,
            device.address("qkv", self.qkv, sizes, dtype),
            *(device.address(name, getattr(self, name), (width,), Dtype.F32) for name in vectors),
            self.epsilon,
            dtype,
        )


def head_norm(
    library: Library, heads: Heads, query: Array, key: Array, value: Array | None = None, stream: int = 0
) -> None:
    """Writes normalised queries and keys, and with `value` a copy of the values, as [B, S, heads, width].

    All outputs must have the same strides, with a contiguous last axis: for example a transposed [B, heads, S, width],
    or qkv[:, :, 0] and qkv[:, :, 1] in place. Raises KernelError.
    """
    device = SameDevice(heads.qkv)
    shape = heads.struct(device)
    sizes, strides = (shape.batch, shape.tokens, shape.heads, shape.head_width), tuple(query.stride())
    addresses = []
    for name, array in (("query", query), ("key", key), ("value", value)):
        if array is not None and (tuple(array.stride()) != strides or strides[-1] != 1):
            raise KernelError("strides differ", where=name, found=array.stride(), expected=(*strides[:-1], 1))
        addresses.append(device.strided_address(name, array, sizes, dtype_of(heads.qkv)))
    library.run("head_norm", HeadNormArguments(0, shape, *addresses, *strides[:-1]), device.stream(stream))


@dataclass(frozen=True, slots=True)
class Int8Outputs:
    """Outputs of `head_norm_int8`.

    query, key: int8 [B, heads, S, width]. query_scales, key_scales: float32 [B, heads, ceil(S / group)], one scale per
    `group` consecutive tokens. key_mean: float32 [B, heads, width], the mean over the tokens, which was subtracted from
    the keys. workspace: uint8 [`int8_workspace(..)`], scratch memory.
    """

    query: Array
    key: Array
    query_scales: Array
    key_scales: Array
    key_mean: Array
    workspace: Array


def int8_workspace(library: Library, heads: Heads) -> int:
    """Size of the workspace of `head_norm_int8`, in bytes."""
    return library.workspace("head_norm_int8", heads.struct(SameDevice(heads.qkv)))


def head_norm_int8(
    library: Library, heads: Heads, out: Int8Outputs, query_group: int, key_group: int, stream: int = 0
) -> None:
    """Writes normalised queries and keys in INT8: value = int8 * scale, one scale per `group` tokens of a head.

    The mean of the keys over the tokens is subtracted first; softmax does not depend on it. Raises KernelError.
    """
    device = SameDevice(heads.qkv)
    shape = heads.struct(device)
    rows = (shape.batch, shape.heads)
    codes, mean = (*rows, shape.tokens, shape.head_width), (*rows, shape.head_width)
    arguments = HeadNormInt8Arguments(
        0,
        shape,
        device.address("query", out.query, codes, Dtype.I8),
        device.address("key", out.key, codes, Dtype.I8),
        device.address("query_scales", out.query_scales, (*rows, -(-shape.tokens // query_group)), Dtype.F32),
        device.address("key_scales", out.key_scales, (*rows, -(-shape.tokens // key_group)), Dtype.F32),
        device.address("key_mean", out.key_mean, mean, Dtype.F32),
        device.address("workspace", out.workspace, tuple(out.workspace.shape), Dtype.U8),
        out.workspace.shape[0],
        query_group,
        key_group,
    )
    library.run("head_norm_int8", arguments, device.stream(stream))
