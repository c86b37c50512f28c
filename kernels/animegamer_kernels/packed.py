"""4-bit and 8-bit weights: dequantised to a full matrix, or multiplied directly by a few tokens.

weight [N, K] = code * scale, one scale per block of b inputs. codes: int8 [N, K / b, b] in 8 bits, int8
[N, K / b, b / 2] in 4 bits. A byte of two 4-bit codes holds element i of the block in its low nibble and element
i + b / 2 in its high nibble. scales: float32 [N, K / b, 1]. Contract: kernels/csrc/animegamer_kernels.h.
"""

from __future__ import annotations

import ctypes

from .arrays import Array, Dtype, SameDevice, dtype_of, sizes_of
from .library import Arguments, Library, integers, pointers

FEW_ROWS = 4
"""The most tokens that `packed_product` accepts. Source: AGK_FEW_ROWS."""


class PackedStruct(ctypes.Structure):
    """struct agk_packed."""

    _fields_ = [*integers("outputs", "inputs", "block"), ("bits", ctypes.c_int32), *pointers("codes", "scales")]

    @classmethod
    def of(cls, device: SameDevice, codes: Array, scales: Array, four_bits: bool) -> PackedStruct:
        """Raises KernelError if the arrays do not match."""
        outputs, blocks, stored = sizes = sizes_of("codes", codes, "[N, K / b, b]")
        block = stored * (2 if four_bits else 1)
        addresses = (
            device.address("codes", codes, sizes, Dtype.I8),
            device.address("scales", scales, (outputs, blocks, 1), Dtype.F32),
        )
        return cls(outputs, blocks * block, block, 4 if four_bits else 8, *addresses)


class UnpackArguments(Arguments):
    """struct agk_unpack_args."""

    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("dtype", ctypes.c_int32),
        ("weight", PackedStruct),
        *pointers("out"),
    ]


class PackedProductArguments(Arguments):
    """struct agk_packed_product_args."""

    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("dtype", ctypes.c_int32),
        ("weight", PackedStruct),
        *integers("rows"),
        *pointers("x", "out"),
    ]


def unpack(library: Library, codes: Array, scales: Array, four_bits: bool, out: Array, stream: int = 0) -> None:
    """Writes the dequantised weight to out [N, K], rounded to out's dtype. Raises KernelError."""
    device, dtype = SameDevice(out), dtype_of(out)
    weight = PackedStruct.of(device, codes, scales, four_bits)
    address = device.address("out", out, (weight.outputs, weight.inputs), dtype)
    library.run("unpack", UnpackArguments(0, dtype, weight, address), device.stream(stream))


def packed_product(
    library: Library, x: Array, codes: Array, scales: Array, four_bits: bool, out: Array, stream: int = 0
) -> None:
    """out [R, N] = x [R, K] weight^T, in x's dtype; R is 1 to FEW_ROWS. Raises KernelError."""
    device, dtype, (rows, _) = SameDevice(x), dtype_of(x), sizes_of("x", x, "[R, K]")
    weight = PackedStruct.of(device, codes, scales, four_bits)
    arrays = (
        device.address("x", x, (rows, weight.inputs), dtype),
        device.address("out", out, (rows, weight.outputs), dtype),
    )
    library.run("packed_product", PackedProductArguments(0, dtype, weight, rows, *arrays), device.stream(stream))
