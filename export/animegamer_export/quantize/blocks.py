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
    if scheme.block is not None:
        return int4_blocks(weight, scheme.block)
    return quantize_channels(weight, scheme.code)


def cast_matrix(weight: Array, code: str) -> Quantized:
    """Casts to fp16 or bf16. Raises BundleError for a weight beyond fp16's largest value, 65504."""
    if code == "fp16" and (largest := float(np.abs(weight).max(initial=0.0))) > FP16_LARGEST:
        raise BundleError("a weight overflows fp16", found=f"{largest:.4g}", expected="at most 65504", do="use bf16")
    codes = weight.astype(np.float16 if code == "fp16" else ml_dtypes.bfloat16)
    return Quantized(codes, np.ones(0, np.float32), codes.astype(np.float32))


def int4_blocks(weight: Array, block: int) -> Quantized:
    """Signed 4-bit values [N, K] (ml_dtypes.int4) with positive scales [N, K / block], for DequantizeLinear."""
    outputs, inputs = weight.shape
    if inputs % block:
        raise BundleError(f"{inputs} inputs are not a multiple of the block size {block}", do="use int8-qdq")
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
