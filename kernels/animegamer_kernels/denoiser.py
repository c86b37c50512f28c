"""The denoiser's operators: what runs between a block's matrix products, attention, a step's end, and noise.

Source: MODEL.md sections 4 and 5; kernels/csrc/animegamer_kernels.h has the contracts. Each raises KernelError.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod

from .arrays import QUANTISED, Array, Dtype, SameDevice, dtype_of, sizes_of
from .library import Arguments, Library, integers, pointers

HEAD_WIDTH = 64
"""The only head width that `attention` supports."""
NOISE_TABLE = 65536
"""Number of values in noise's table."""
PATCH = 2
COEFFICIENTS = 8


class RowsStruct(ctypes.Structure):
    """struct agk_rows."""

    _fields_ = [*integers("rows", "tokens", "shot_tokens", "width"), ("dtype", ctypes.c_int32)]


class NormStruct(ctypes.Structure):
    """struct agk_norm."""

    _fields_ = [
        *pointers("weight", "bias", "image", "shot", "out", "out_scales"),
        ("epsilon", ctypes.c_float),
        ("out_dtype", ctypes.c_int32),
    ]


class NormModulateArguments(Arguments):
    """struct agk_norm_modulate_args."""

    _fields_ = [("struct_bytes", ctypes.c_uint32), ("shape", RowsStruct), *pointers("x"), ("norm", NormStruct)]


class GateResidualArguments(Arguments):
    """struct agk_gate_residual_args."""

    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("shape", RowsStruct),
        *pointers("x", "branch", "image_gate", "shot_gate"),
        ("norm", NormStruct),
    ]


class EpilogueArguments(Arguments):
    """struct agk_epilogue_args."""

    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("dtype", ctypes.c_int32),
        *integers("rows", "width"),
        *pointers("x", "row_scales", "column_scales", "bias", "out", "out_scales"),
        ("out_dtype", ctypes.c_int32),
        ("gelu", ctypes.c_int32),
    ]


class HeadNormArguments(Arguments):
    """struct agk_head_norm_args."""

    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("dtype", ctypes.c_int32),
        *integers("batch", "tokens", "heads", "head_width"),
        *pointers("qkv", "query_weight", "query_bias", "key_weight", "key_bias"),
        ("epsilon", ctypes.c_float),
    ]


class AttentionArguments(Arguments):
    """struct agk_attention_args."""

    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("dtype", ctypes.c_int32),
        *integers("batch", "tokens", "heads", "head_width"),
        *pointers("qkv", "out"),
    ]


class GuidedStepArguments(Arguments):
    """struct agk_guided_step_args."""

    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("dtype", ctypes.c_int32),
        *integers("batch", "frames", "channels", "height", "width"),
        *pointers("patches", "latent", "x0", "difference", "noise", "coefficients"),
    ]


class NoiseArguments(Arguments):
    """struct agk_noise_args."""

    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("draws", ctypes.c_int32),
        *integers("count", "first"),
        *pointers("turn", "table", "weights", "out"),
    ]


def norm_modulate(
    library: Library,
    x: Array,
    weight: Array,
    bias: Array,
    epsilon: float,
    shot: Array | None,
    image: Array | None,
    shot_tokens: int,
    out: Array,
    out_scales: Array | None = None,
    stream: int = 0,
) -> None:
    """out = LayerNorm(row) * weight + bias, then out * (1 + scale) + shift, for the rows of x [B, S, D].

    weight, bias: float32 [D]. shot, image: shift and scale, float32 [2, D], for the first `shot_tokens` tokens and for
    the others; None for a kind that has no tokens, or for both. out: [B, S, D] in x's dtype; or float8_e4m3fn or int8
    with out_scales float32 [B, S], value = out * scale.
    """
    device, (rows, address) = SameDevice(x), _rows(x, shot_tokens)
    norm = _norm(device, x, weight, bias, epsilon, shot, image, out, out_scales)
    library.run("norm_modulate", NormModulateArguments(0, rows, address, norm), device.stream(stream))


def gate_residual(
    library: Library,
    x: Array,
    branch: Array,
    shot_gate: Array,
    image_gate: Array,
    weight: Array,
    bias: Array,
    epsilon: float,
    shot: Array | None,
    image: Array | None,
    shot_tokens: int,
    out: Array,
    out_scales: Array | None = None,
    stream: int = 0,
) -> None:
    """x += gate * branch in place, both [B, S, D]; then the rest as `norm_modulate`. Gates: float32 [D]."""
    device, (rows, address) = SameDevice(x), _rows(x, shot_tokens)
    sizes, width = tuple(x.shape), (rows.width,)
    arguments = GateResidualArguments(
        0,
        rows,
        address,
        device.address("branch", branch, sizes, dtype_of(x)),
        device.address("image_gate", image_gate, width, Dtype.F32),
        device.address("shot_gate", shot_gate, width, Dtype.F32),
        _norm(device, x, weight, bias, epsilon, shot, image, out, out_scales),
    )
    library.run("gate_residual", arguments, device.stream(stream))


def _rows(x: Array, shot_tokens: int) -> tuple[RowsStruct, int | None]:
    batch, tokens, width = sizes = sizes_of("x", x, "[B, S, D]")
    address = SameDevice(x).address("x", x, sizes, dtype_of(x))
    return RowsStruct(batch * tokens, tokens, shot_tokens, width, dtype_of(x)), address


def _norm(
    device: SameDevice,
    x: Array,
    weight: Array,
    bias: Array,
    epsilon: float,
    shot: Array | None,
    image: Array | None,
    out: Array,
    out_scales: Array | None,
) -> NormStruct:
    sizes, width = tuple(x.shape), x.shape[2]
    return NormStruct(
        device.address("weight", weight, (width,), Dtype.F32),
        device.address("bias", bias, (width,), Dtype.F32),
        device.address("image", image, (2, width), Dtype.F32),
        device.address("shot", shot, (2, width), Dtype.F32),
        device.address("out", out, sizes, dtype_of(x), *QUANTISED),
        device.address("out_scales", out_scales, sizes[:2], Dtype.F32),
        epsilon,
        dtype_of(out),
    )


def epilogue(
    library: Library,
    x: Array,
    row_scales: Array | None,
    column_scales: Array | None,
    bias: Array | None,
    gelu: bool,
    out: Array,
    out_scales: Array | None = None,
    stream: int = 0,
) -> None:
    """The epilogue of a matrix product: dequantises x [.., D], applies GELU, and writes out [.., D].

    x: activations; or the int32 result of an INT8 product, which is x * row_scale * column_scale + bias, float32 [..],
    [D] and [D]. gelu: the tanh approximation. out: the activations' dtype, and then may be x itself; or float8_e4m3fn
    or int8 with out_scales float32 [..], value = out * scale.
    """
    device, sizes, dtype = SameDevice(x), tuple(x.shape), dtype_of(x)
    if row_scales is not None:
        # A quantised output does not determine the activations' dtype; bfloat16 will do.
        dtype = Dtype.BF16 if dtype_of(out) in QUANTISED else dtype_of(out)
    arguments = EpilogueArguments(
        0,
        dtype,
        prod(sizes[:-1]),
        sizes[-1],
        device.address("x", x, sizes, dtype if row_scales is None else Dtype.I32),
        device.address("row_scales", row_scales, sizes[:-1], Dtype.F32),
        device.address("column_scales", column_scales, sizes[-1:], Dtype.F32),
        device.address("bias", bias, sizes[-1:], Dtype.F32),
        device.address("out", out, sizes, dtype, *QUANTISED),
        device.address("out_scales", out_scales, sizes[:-1], Dtype.F32),
        dtype_of(out),
        gelu,
    )
    library.run("epilogue", arguments, device.stream(stream))


def head_norm(
    library: Library,
    qkv: Array,
    query_weight: Array,
    query_bias: Array,
    key_weight: Array,
    key_bias: Array,
    epsilon: float,
    stream: int = 0,
) -> None:
    """LayerNorm of every head of queries and keys, in place in qkv [B, S, 3, heads, width].

    Weights and biases: float32 [width].
    """
    device, (batch, tokens, _, heads, width) = SameDevice(qkv), sizes_of("qkv", qkv, "[B, S, 3, heads, width]")
    vectors = {"query_weight": query_weight, "query_bias": query_bias, "key_weight": key_weight, "key_bias": key_bias}
    arguments = HeadNormArguments(
        0,
        dtype_of(qkv),
        batch,
        tokens,
        heads,
        width,
        device.address("qkv", qkv, (batch, tokens, 3, heads, width), dtype_of(qkv)),
        *(device.address(name, vector, (width,), Dtype.F32) for name, vector in vectors.items()),
        epsilon,
    )
    library.run("head_norm", arguments, device.stream(stream))


def attention(library: Library, qkv: Array, out: Array, stream: int = 0) -> None:
    """softmax(query key^T / 8) value over all tokens, into out [B, S, heads, 64]. On a GPU: sm_90 only.

    qkv: float16 or bfloat16 [B, S, 3, heads, 64], normalised by `head_norm`. Scores are float32.
    """
    device, (batch, tokens, _, heads, width) = SameDevice(qkv), sizes_of("qkv", qkv, "[B, S, 3, heads, 64]")
    arguments = AttentionArguments(
        0,
        dtype_of(qkv),
        batch,
        tokens,
        heads,
        width,
        device.address("qkv", qkv, (batch, tokens, 3, heads, width), dtype_of(qkv)),
        device.address("out", out, (batch, tokens, heads, width), dtype_of(qkv)),
    )
    library.run("attention", arguments, device.stream(stream))


def guided_step(
    library: Library,
    patches: Array,
    latent: Array,
    x0: Array,
    difference: Array,
    noise: Array,
    coefficients: Array,
    stream: int = 0,
) -> None:
    """Guidance and solver update from the denoiser's output `patches` [B, P, C * 4].

    B is 1 (conditional row only) or 2 (unconditional row first). latent, x0, difference: float32 [1, F, C, h, w],
    updated in place; noise: likewise. coefficients: float32 [8] on the same device, read when the kernel runs; their
    order is in animegamer_kernels.h.
    """
    sizes = sizes_of("latent", latent, "[1, F, C, h, w]")
    _, frames, channels, height, width = sizes
    device, dtype, batch = SameDevice(latent), dtype_of(patches), patches.shape[0]
    flat = (batch, frames * (height // PATCH) * (width // PATCH), channels * PATCH * PATCH)
    pictures = {"latent": latent, "x0": x0, "difference": difference, "noise": noise}
    arguments = GuidedStepArguments(
        0,
        dtype,
        batch,
        *sizes[1:],
        device.address("patches", patches, flat, dtype),
        *(device.address(name, array, sizes, Dtype.F32) for name, array in pictures.items()),
        device.address("coefficients", coefficients, (COEFFICIENTS,), Dtype.F32),
    )
    library.run("guided_step", arguments, device.stream(stream))


def noise(
    library: Library, turn: Array, table: Array, first: int, weights: Sequence[float], out: Array, stream: int = 0
) -> None:
    """Writes the weighted sum of the draws `first`, `first` + 1, ..., one for each weight, to out, float32.

    The same bits on every device. turn: int64 [3], the bits of the seed's low and high half and of the turn, read when
    the kernel runs. table: float32 [NOISE_TABLE]. weights: rounded to float32, copied by the call.
    """
    device, copied = SameDevice(out), (ctypes.c_float * len(weights))(*weights)
    arguments = NoiseArguments(
        0,
        len(weights),
        prod(out.shape),
        first,
        device.address("turn", turn, (3,), Dtype.I64),
        device.address("table", table, (NOISE_TABLE,), Dtype.F32),
        ctypes.addressof(copied),
        device.address("out", out, tuple(out.shape), Dtype.F32),
    )
    library.run("noise", arguments, device.stream(stream))
