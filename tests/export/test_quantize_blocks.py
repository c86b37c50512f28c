"""Claims about codes and scales, on matrices of a few thousand weights."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from animegamer_export.evaluate.metrics import relative_error
from animegamer_export.quantize import blocks
from animegamer_export.quantize.blocks import quantize_matrix
from animegamer_export.quantize.scheme import SCHEMES, scheme
from animegamer_rt.errors import BundleError

# Of normal weights, in blocks of 64 or a scale a channel of 256; a tenth above what was measured.
MOST_ERROR = {
    "fp16": 3e-4,
    "bf16": 2e-3,
    "nf4": 0.10,
    "int8": 0.007,
    "int4": 0.105,
    "int8-qdq": 0.008,
    "int4-qdq": 0.110,
    "fp8": 0.030,
    "w8a8": 0.008,
    "int8-dynamic": 0.008,
}


def normal(outputs: int, inputs: int, seed: int = 0) -> blocks.Array:
    return np.random.default_rng(seed).standard_normal((outputs, inputs), np.float32) * np.float32(0.02)


def test_error_of_normal_weights_is_what_the_scheme_promises() -> None:
    weight = normal(48, 256)
    for name in SCHEMES:
        made = quantize_matrix(weight, scheme(name))
        assert made.weight.shape == weight.shape
        assert 0 < relative_error(made.weight, weight) < MOST_ERROR[name], name


@pytest.mark.parametrize("shape", [(96, 80), (33, 64)])
def test_nf4_blocks_are_those_of_bitsandbytes(shape: tuple[int, int]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from bitsandbytes import functional
    import torch

    weight = normal(*shape)
    codes, state = functional.quantize_4bit(torch.from_numpy(weight), blocksize=64, quant_type="nf4")
    made = blocks.nf4(weight, 64)
    np.testing.assert_array_equal(made.codes, codes.numpy().reshape(-1))
    np.testing.assert_array_equal(made.scales, state.absmax.numpy())
    np.testing.assert_array_equal(blocks.NF4_CODE, state.code.numpy())
    # Its CPU kernel (0.50) turns codes back wrongly where a block spans two rows; the codes themselves are right.
    if shape[1] % 64 == 0:
        restored = functional.dequantize_4bit(codes, state)
        np.testing.assert_allclose(made.weight, restored.numpy(), atol=1e-8)


@pytest.mark.parametrize(
    ("weight", "name", "said"),
    [
        (np.full((2, 64), 7e4, np.float32), "fp16", "does not fit fp16.*bf16"),
        (np.full((2, 64), np.nan, np.float32), "nf4", "not a number"),
        (normal(2, 80), "int4-qdq", "not a multiple of the block size 64"),
    ],
)
def test_weight_that_a_scheme_cannot_hold_is_refused(weight: blocks.Array, name: str, said: str) -> None:
    with pytest.raises(BundleError, match=said):
        quantize_matrix(weight, scheme(name))
