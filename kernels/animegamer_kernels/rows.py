"""Row-wise operators between the matrix products of a block: norm, modulation, gate, GELU, quantisation.

Source: MODEL.md section 4; kernels/csrc/animegamer_kernels.h has the contract.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from .arrays import Array, Dtype, SameDevice, dtype_of
from .errors import KernelError
from .library import Arguments, Library


class RowsStruct(ctypes.Structure):
    """struct agk_rows."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("rows", "tokens", "shot_tokens", "width", "modulation_stride")),
        ("dtype", ctypes.c_int32),
    ]


class NormStruct(ctypes.Structure):
    """struct agk_norm."""

    _fields_ = [
        *(
            (name, ctypes.c_void_p)
            for name in ("weight", "bias", "image_shift", "image_scale", "shot_shift", "shot_scale")
        ),
        *((name, ctypes.c_void_p) for name in ("out", "out_scales")),
        ("epsilon", ctypes.c_float),
        ("out_dtype", ctypes.c_int32),
    ]


class NormModulateArguments(Arguments):
    """struct agk_norm_modulate_args."""

    _fields_ = [("struct_bytes", ctypes.c_uint32), ("shape", RowsStruct), ("x", ctypes.c_void_p), ("norm", NormStruct)]


class GateResidualArguments(Arguments):
    """struct agk_gate_residual_args."""

    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("shape", RowsStruct),
        *((name, ctypes.c_void_p) for name in ("x", "branch", "image_gate", "shot_gate", "x_next")),
        ("norm", NormStruct),
    ]


class EpilogueArguments(Arguments):
    """struct agk_epilogue_args."""

    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("dtype", ctypes.c_int32),
        ("rows", ctypes.c_int64),
        ("width", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("x", "row_scales", "column_scales", "bias", "out", "out_scales")),
        ("out_dtype", ctypes.c_int32),
        ("gelu", ctypes.c_int32),
    ]


@dataclass(frozen=True, slots=True)
class Norm:
    """y = LayerNorm(row) * weight + bias, then y * (1 + scale) + shift, written to `out`.

    Scale and shift are the shot's or the image's, by token position.
    out: [B, S, D] in the input's dtype; or float8_e4m3fn or int8 with out_scales float32 [B, S], value = out * scale.
    weight, bias: float32 [D], both or none. Shifts and scales: float32 [D], or [B, D] with any batch stride.
    """

    out: Array
    epsilon: float
    out_scales: Array | None = None
    weight: Array | None = None
    bias: Array | None = None
    image_shift: Array | None = None
    image_scale: Array | None = None
    shot_shift: Array | None = None
    shot_scale: Array | None = None


@dataclass(frozen=True, slots=True)
class Int32Sums:
    """How to dequantise the int32 result [R, D] of an INT8 product: sum * row_scale * column_scale + bias.

    row_scales: float32 [R]. column_scales, bias: float32 [D].
    """

    row_scales: Array
    column_scales: Array
    bias: Array


QUANTISED = (Dtype.E4M3, Dtype.I8)


class _Rows:
    """Sizes of x [B, S, D], and the common batch stride of a call's shifts, scales and gates."""

    def __init__(self, x: Array, shot_tokens: int) -> None:
        if len(x.shape) != 3:
            raise KernelError("wrong shape", where="x", found=tuple(x.shape), expected="[B, S, D]")
        self.sizes = tuple(x.shape)
        self.batch, self.tokens, self.width = self.sizes
        self.shot_tokens = shot_tokens
        self.dtype = dtype_of(x)
        self.device = SameDevice(x)
        self.strides: set[int] = set()

    def tensor(self, what: str, array: Array | None) -> int | None:
        return self.device.address(what, array, self.sizes, self.dtype)

    def vector(self, what: str, array: Array | None) -> int | None:
        address, stride = self.device.row_address(what, array, self.batch, self.width)
        if array is not None:
            self.strides.add(stride)
        return address

    def norm(self, norm: Norm) -> NormStruct:
        device, one = self.device, (self.width,)
        return NormStruct(
            device.address("weight", norm.weight, one, Dtype.F32),
            device.address("bias", norm.bias, one, Dtype.F32),
            self.vector("image_shift", norm.image_shift),
            self.vector("image_scale", norm.image_scale),
            self.vector("shot_shift", norm.shot_shift),
            self.vector("shot_scale", norm.shot_scale),
            device.address("out", norm.out, self.sizes, self.dtype, *QUANTISED),
            device.address("out_scales", norm.out_scales, self.sizes[:2], Dtype.F32),
            norm.epsilon,
            dtype_of(norm.out),
        )

    def struct(self) -> RowsStruct:
        if len(self.strides) > 1:
            strides = sorted(self.strides)
            raise KernelError(
                "shifts, scales and gates have different batch strides", found=strides, expected="one stride"
            )
        stride = next(iter(self.strides), 0)
        rows = self.batch * self.tokens
        return RowsStruct(rows, self.tokens, self.shot_tokens, self.width, stride, self.dtype)


def norm_modulate(library: Library, x: Array, norm: Norm, shot_tokens: int, stream: int = 0) -> None:
    """Normalises and modulates x [B, S, D] into norm.out; the first `shot_tokens` tokens are the shot's.

    Raises KernelError.
    """
    rows = _Rows(x, shot_tokens)
    address, normed = rows.tensor("x", x), rows.norm(norm)
    library.run("norm_modulate", NormModulateArguments(0, rows.struct(), address, normed), rows.device.stream(stream))


def gate_residual(
    library: Library,
    x: Array,
    branch: Array,
    image_gate: Array | None,
    shot_gate: Array | None,
    x_next: Array,
    shot_tokens: int,
    norm: Norm | None = None,
    stream: int = 0,
) -> None:
    """x_next = x + gate * branch, all [B, S, D]; then, if `norm` is given, the norm of x_next into norm.out.

    Gates: float32 [D] or [B, D]; the first `shot_tokens` tokens use shot_gate, the others image_gate. x_next may be x.
    Raises KernelError.
    """
    rows = _Rows(x, shot_tokens)
    arrays = (
        rows.tensor("x", x),
        rows.tensor("branch", branch),
        rows.vector("image_gate", image_gate),
        rows.vector("shot_gate", shot_gate),
        rows.tensor("x_next", x_next),
    )
    normed = NormStruct() if norm is None else rows.norm(norm)
    library.run("gate_residual", GateResidualArguments(0, rows.struct(), *arrays, normed), rows.device.stream(stream))


def epilogue(
    library: Library,
    x: Array,
    out: Array,
    out_scales: Array | None = None,
    sums: Int32Sums | None = None,
    gelu: bool = False,
    stream: int = 0,
) -> None:
    """The epilogue of a matrix product: dequantises x [R, D], applies GELU, and writes out [R, D].

    x: activations; or int32, dequantised by `sums`. gelu: the tanh approximation. out: the activations' dtype, and then
    may be x itself; or float8_e4m3fn or int8 with out_scales float32 [R], value = out * scale. Raises KernelError.
    """
    if len(x.shape) != 2:
        raise KernelError("wrong shape", where="x", found=tuple(x.shape), expected="[R, D]")
    device, sizes, dtype = SameDevice(x), tuple(x.shape), dtype_of(x)
    rows, columns = sizes[:1], sizes[1:]
    address = device.address("x", x, sizes, dtype if sums is None else Dtype.I32)
    scales: tuple[int | None, ...] = (None, None, None)
    if sums is not None:
        # A quantised output does not determine the activations' dtype; bfloat16 will do.
        dtype = Dtype.BF16 if dtype_of(out) in QUANTISED else dtype_of(out)
        scales = (
            device.address("row_scales", sums.row_scales, rows, Dtype.F32),
            device.address("column_scales", sums.column_scales, columns, Dtype.F32),
            device.address("bias", sums.bias, columns, Dtype.F32),
        )
    into = (
        device.address("out", out, sizes, dtype, *QUANTISED),
        device.address("out_scales", out_scales, rows, Dtype.F32),
    )
    arguments = EpilogueArguments(0, dtype, *sizes, address, *scales, *into, dtype_of(out), gelu)
    library.run("epilogue", arguments, device.stream(stream))
