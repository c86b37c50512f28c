"""Weights in 4 and 8 bits: made whole, or multiplied as they lie by a few tokens, as calls on arrays.

It does not know layers. Source: kernels/csrc/animegamer_kernels.h has the layout, and the contract.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from .arrays import Array, Dtype, Room, dtype_of
from .errors import KernelError
from .library import Arguments, Library

FEW_ROWS = 4
"""The most tokens that `packed_product` takes. Source: AGK_FEW_ROWS."""


class PackedStruct(ctypes.Structure):
    """struct agk_packed."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("outputs", "inputs", "block")),
        ("bits", ctypes.c_int32),
        *((name, ctypes.c_void_p) for name in ("codes", "scales")),
    ]


class UnpackArguments(Arguments):
    """struct agk_unpack_args."""

    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("dtype", ctypes.c_int32),
        ("weight", PackedStruct),
        ("out", ctypes.c_void_p),
    ]


class PackedProductArguments(Arguments):
    """struct agk_packed_product_args."""

    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("dtype", ctypes.c_int32),
        ("weight", PackedStruct),
        ("rows", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("x", "out")),
    ]


@dataclass(frozen=True, slots=True)
class Packed:
    """A weight [N, K] in blocks of b inputs that share a scale: code * scale.

    codes int8 [N, K / b, b] in 8 bits, [N, K / b, b / 2] in 4, where a byte's low half is of the block's first half and
    its high half of the second; scales float32 [N, K / b].
    """

    codes: Array
    scales: Array
    bits: int

    def sizes(self) -> tuple[int, int, int]:
        """N, K and b."""
        outputs, blocks, held = self.codes.shape
        block = held * 8 // self.bits
        return outputs, blocks * block, block

    def struct(self, room: Room) -> PackedStruct:
        """With the addresses of arrays that fit. Raises KernelError."""
        if len(self.codes.shape) != 3:
            raise KernelError(
                "an array of another shape", where="codes", found=tuple(self.codes.shape), expected="3 axes"
            )
        codes = room.address("codes", self.codes, self.codes.shape, Dtype.I8)
        scales = room.address("scales", self.scales, self.codes.shape[:2], Dtype.F32)
        return PackedStruct(*self.sizes(), self.bits, codes, scales)


def unpack(library: Library, weight: Packed, out: Array, stream: int = 0) -> None:
    """The weight as numbers, each rounded once, into out [N, K]. Raises KernelError. Streams as for norm_modulate."""
    room, dtype = Room(out), dtype_of(out)
    packed = weight.struct(room)
    address = room.address("out", out, weight.sizes()[:2], dtype)
    library.run("unpack", UnpackArguments(0, dtype, packed, address), room.stream(stream))


def packed_product(library: Library, weight: Packed, x: Array, out: Array, stream: int = 0) -> None:
    """x [R, K] times the weight's transpose into out [R, N] of x's dtype, R at most FEW_ROWS. Raises KernelError."""
    if len(x.shape) != 2:
        raise KernelError("an array of another shape", where="x", found=tuple(x.shape), expected="[R, K]")
    room, dtype, rows = Room(x), dtype_of(x), x.shape[0]
    packed = weight.struct(room)
    outputs, inputs, _ = weight.sizes()
    arrays = room.address("x", x, (rows, inputs), dtype), room.address("out", out, (rows, outputs), dtype)
    library.run("packed_product", PackedProductArguments(0, dtype, packed, rows, *arrays), room.stream(stream))
