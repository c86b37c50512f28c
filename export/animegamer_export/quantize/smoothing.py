"""Chooses the scales of one matrix's activations, with smoothing where it lowers the error.

Source: SmoothQuant (Xiao et al. 2023): inputs are divided, and the weight's columns multiplied, by max|x|^a /
max|w|^(1-a).
"""

from __future__ import annotations

import numpy as np

from animegamer_export.evaluate.metrics import relative_error

from .blocks import FP8_LARGEST, SMALLEST_SCALE, Array, quantize_matrix, round_trip
from .nodes import Ranges
from .ranges import Activation
from .scheme import Scheme

STRENGTHS = (0.5, 0.75)
"""Values of a to try; 0.5 is the paper's, 0.75 its choice for models with larger outliers."""

MAX_ERROR_RATIO = 0.9
"""Smoothing costs one more multiplication per token, so it must lower the product's error at least to this share."""


def activation_ranges(weight: Array, activation: Activation, scheme: Scheme) -> Ranges:
    """Scales of the activations, with smoothing if it lowers the error of the recorded rows' product enough."""
    plain = _ranges(activation.largest, scheme, None)
    best, least = plain, MAX_ERROR_RATIO * product_error(weight, activation, scheme, plain)
    largest = np.maximum(activation.largest.max(axis=0), SMALLEST_SCALE)
    columns = np.maximum(np.abs(weight).max(axis=0), SMALLEST_SCALE)
    for strength in STRENGTHS:
        factors = (largest**strength / columns ** (1 - strength)).astype(np.float32)
        factors = np.clip(factors / np.exp(np.log(factors).mean()), 1e-3, 1e3).astype(np.float32)
        tried = _ranges(activation.largest, scheme, factors)
        error = product_error(weight, activation, scheme, tried)
        if error < least:
            best, least = tried, error
    return best


def product_error(weight: Array, activation: Activation, scheme: Scheme, by: Ranges) -> float:
    """Relative error of the product of recorded rows and weight [N, K], both quantised."""
    factors = np.ones(weight.shape[1], np.float32) if by.factors is None else by.factors
    rows, _ = round_trip(activation.rows / factors, np.float32(max(by.scales)), scheme.code)
    return relative_error(rows @ quantize_matrix(weight * factors, scheme).weight.T, activation.rows @ weight.T)


def _ranges(largest: Array, scheme: Scheme, factors: Array | None) -> Ranges:
    seen = largest if factors is None else largest / factors
    top = FP8_LARGEST if scheme.code == "fp8" else 127.0
    return Ranges(tuple(float(max(row.max(), SMALLEST_SCALE)) / top for row in seen), factors)
