"""Quantises one weight matrix to codes and scales, in numpy.

N outputs, K inputs; a weight is float32 [N, K], as in torch's Linear.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import numpy.typing as npt

from animegamer_export.quantize.scheme import Scheme
from animegamer_rt.errors import BundleError

Array = npt.NDArray[np.float32]
Codes = npt.NDArray[np.generic]

NF4_CODE = np.array(
    [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
     -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
     0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0],
    np.float32,
)  # fmt: skip
"""The sixteen values of NF4 (Dettmers et al. 2023, QLoRA, appendix E), as in bitsandbytes and onnxruntime."""

FP8_LARGEST = 448.0
FP16_LARGEST = 65504.0
SMALLEST_SCALE = np.float32(1e-30)


@dataclass(frozen=True, slots=True)
class Quantized:
    """Codes as stored, their scales, and the dequantised weight, float32 [N, K]."""

    codes: Codes
    scales: Array
    weight: Array


def quantize_matrix(weight: Array, scheme: Scheme) -> Quantized:
    """Quantises one matrix. Raises BundleError for a weight that the precision cannot represent."""
    if not np.isfinite(weight).all():
        raise BundleError("a weight is NaN", do="convert the checkpoint again")
    if scheme.form == "stored":
        return cast_matrix(weight, scheme.code)
    if scheme.code == "nf4":
        assert scheme.block
        return nf4(weight, scheme.block)
    if scheme.form == "nbits":
        assert scheme.block
        return nbits(weight, 8 if scheme.code == "int8" else 4, scheme.block)
    if scheme.code == "int4":
        assert scheme.block
        return int4_blocks(weight, scheme.block)
    return quantize_channels(weight, scheme.code)


def cast_matrix(weight: Array, code: str) -> Quantized:
    """Casts to fp16 or bf16. Raises BundleError for a weight beyond fp16's largest value, 65504."""
    if code == "fp16" and (largest := float(np.abs(weight).max(initial=0.0))) > FP16_LARGEST:
        raise BundleError("a weight overflows fp16", found=f"{largest:.4g}", expected="at most 65504", do="use bf16")
    codes = weight.astype(np.float16 if code == "fp16" else ml_dtypes.bfloat16)
    return Quantized(codes, np.ones(0, np.float32), codes.astype(np.float32))


def nf4(weight: Array, block: int) -> Quantized:
    """NF4 in bitsandbytes' layout: blocks over the row-major matrix, two codes per byte, high nibble first.

    codes uint8 [ceil(N K / 2)], scales [ceil(N K / block)], the largest magnitude of each block.
    """
    flat = weight.reshape(-1)
    padded = np.pad(flat, (0, -flat.size % block)).reshape(-1, block)
    scales = np.abs(padded).max(axis=1)
    levels = padded / np.maximum(scales, SMALLEST_SCALE)[:, None]
    index = np.searchsorted((NF4_CODE[1:] + NF4_CODE[:-1]) / 2, levels.reshape(-1)).astype(np.uint8)
    restored = (NF4_CODE[index].reshape(padded.shape) * scales[:, None]).reshape(-1)[: flat.size]
    index = index[: flat.size + flat.size % 2]
    return Quantized(index[0::2] << 4 | index[1::2], scales, restored.reshape(weight.shape))


def nbits(weight: Array, bits: int, block: int) -> Quantized:
    """MatMulNBits' layout without zero points: codes uint8 [N, blocks, block bits / 8], scales [N, blocks].

    A code is its value plus 2^(bits-1); the first of a byte is in the low nibble. The scale is the block's extreme
    value, signed, over -2^(bits-1), so that the extreme gets the additional negative code. On normal weights the error
    of 4 bits is 0.095; with the largest magnitude over 7 it is 0.108, and NF4's is 0.092.
    """
    outputs, inputs = weight.shape
    half = 2 ** (bits - 1)
    padded = np.pad(weight, ((0, 0), (0, -inputs % block))).reshape(outputs, -1, block)
    extreme = np.take_along_axis(padded, np.abs(padded).argmax(axis=2)[..., None], axis=2)[..., 0]
    scales = np.where(extreme == 0, np.float32(1), extreme / np.float32(-half)).astype(np.float32)
    values = np.clip(np.rint(padded / scales[..., None]), -half, half - 1)
    restored = (values * scales[..., None]).reshape(outputs, -1)[:, :inputs].astype(np.float32)
    codes: npt.NDArray[np.uint8] = (values + half).astype(np.uint8)
    return Quantized(_pack_pairs(codes) if bits == 4 else codes, scales, restored)


def int4_blocks(weight: Array, block: int) -> Quantized:
    """Signed 4-bit values [N, K] (ml_dtypes.int4) with positive scales [N, K / block], for DequantizeLinear."""
    outputs, inputs = weight.shape
    if inputs % block:
        raise BundleError(f"{inputs} inputs are not a multiple of the block size {block}", do="use another block size")
    blocks = weight.reshape(outputs, -1, block)
    scales = np.maximum(np.abs(blocks).max(axis=2) / np.float32(8), SMALLEST_SCALE)
    values = np.clip(np.rint(blocks / scales[..., None]), -8, 7)
    restored = (values * scales[..., None]).reshape(weight.shape).astype(np.float32)
    return Quantized(values.reshape(weight.shape).astype(ml_dtypes.int4), scales, restored)


def quantize_channels(weight: Array, code: str) -> Quantized:
    """One scale per output channel [N]: int8 -127..127, or fp8 E4M3 up to 448."""
    largest = np.float32(FP8_LARGEST if code == "fp8" else 127)
    scales = np.maximum(np.abs(weight).max(axis=1) / largest, SMALLEST_SCALE)
    values, codes = round_trip(weight, scales[:, None], code)
    return Quantized(codes, scales, values)


def round_trip(x: Array, scale: Array | np.float32, code: str) -> tuple[Array, Codes]:
    """x after QuantizeLinear and DequantizeLinear, and the codes."""
    codes: Codes
    if code == "fp8":
        codes = np.clip(x / scale, -FP8_LARGEST, FP8_LARGEST).astype(ml_dtypes.float8_e4m3fn)
    else:
        codes = np.clip(np.rint(x / scale), -128, 127).astype(np.int8)
    return codes.astype(np.float32) * scale, codes


def _pack_pairs(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    return np.asarray(codes[..., 0::2] | codes[..., 1::2] << 4, np.uint8)
