"""4-bit and 8-bit weights: dequantised to a full matrix, or multiplied directly by a few tokens.

Source: kernels/csrc/animegamer_kernels.h has the layout and the contract.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from .arrays import Array, Dtype, SameDevice, dtype_of
from .errors import KernelError
from .library import Arguments, Library

FEW_ROWS = 4
"""The most tokens that `packed_product` accepts. Source: AGK_FEW_ROWS."""


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
    """A quantised weight [N, K]: weight = code * scale, one scale per block of b inputs.

    codes: int8 [N, K / b, b] in 8 bits, int8 [N, K / b, b / 2] in 4 bits. A byte of two 4-bit codes holds element i of
    the block in its low nibble and element i + b / 2 in its high nibble. scales: float32 [N, K / b].
    """

    codes: Array
    scales: Array
    bits: int

    def sizes(self) -> tuple[int, int, int]:
        """N, K and b."""
        outputs, blocks, held = self.codes.shape
        block = held * 8 // self.bits
        return outputs, blocks * block, block

    def struct(self, device: SameDevice) -> PackedStruct:
        """The C struct. Raises KernelError if the arrays do not match."""
        if len(self.codes.shape) != 3:
            raise KernelError("wrong shape", where="codes", found=tuple(self.codes.shape), expected="3 axes")
        codes = device.address("codes", self.codes, self.codes.shape, Dtype.I8)
        scales = device.address("scales", self.scales, self.codes.shape[:2], Dtype.F32)
        return PackedStruct(*self.sizes(), self.bits, codes, scales)


def unpack(library: Library, weight: Packed, out: Array, stream: int = 0) -> None:
    """Writes the dequantised weight to out [N, K], rounded to out's dtype. Raises KernelError."""
    device, dtype = SameDevice(out), dtype_of(out)
    packed = weight.struct(device)
    address = device.address("out", out, weight.sizes()[:2], dtype)
    library.run("unpack", UnpackArguments(0, dtype, packed, address), device.stream(stream))


def packed_product(library: Library, weight: Packed, x: Array, out: Array, stream: int = 0) -> None:
    """out [R, N] = x [R, K] weight^T, in x's dtype; R is 1 to FEW_ROWS. Raises KernelError."""
    if len(x.shape) != 2:
        raise KernelError("wrong shape", where="x", found=tuple(x.shape), expected="[R, K]")
    device, dtype, rows = SameDevice(x), dtype_of(x), x.shape[0]
    packed = weight.struct(device)
    outputs, inputs, _ = weight.sizes()
    arrays = device.address("x", x, (rows, inputs), dtype), device.address("out", out, (rows, outputs), dtype)
    library.run("packed_product", PackedProductArguments(0, dtype, packed, rows, *arrays), device.stream(stream))
