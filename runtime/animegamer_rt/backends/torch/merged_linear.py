"""Linear layers with the same input, multiplied as one: fewer and larger products for the predictor's few tokens.

Supports layers without a bias: plain ones and PackedLinear. Their outputs are rows of a weight, so a merged
layer computes the same numbers, up to the order of sums that a library chooses for its size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from .packed_linear import PackedLinear

Products = Callable[[Tensor], tuple[Tensor, ...]]
"""[..., K] -> the outputs of all layers, [..., N] each; they may be views of one tensor."""


def merge(layers: Sequence[nn.Module]) -> Products:
    """The layers as one product if they are of one kind, else one after the other.

    Their weights become views of the merged weight, so nothing is stored twice.
    """
    whole = _merged(layers)
    if whole is None:
        return apart(layers)
    widths = [_outputs(layer) for layer in layers]
    return lambda x: whole(x).split(widths, dim=-1)


def apart(layers: Sequence[nn.Module]) -> Products:
    """The layers one after the other."""
    return lambda x: tuple(layer(x) for layer in layers)


def _merged(layers: Sequence[nn.Module]) -> nn.Module | None:
    first = layers[0]
    if any(type(layer) is not type(first) for layer in layers):
        return None
    if isinstance(first, PackedLinear):
        return _merged_packed(cast(Sequence[PackedLinear], layers))
    plain = cast(Sequence[nn.Linear], layers)
    if type(first) is not nn.Linear or len({layer.weight.dtype for layer in plain}) > 1:
        return None
    weights = [layer.weight for layer in plain]
    rows_of_each = [len(weight) for weight in weights]
    whole = nn.Linear(first.in_features, sum(rows_of_each), bias=False, device="meta")
    whole.weight = nn.Parameter(torch.cat([weight.data for weight in weights]), requires_grad=False)
    for weight, rows in zip(weights, whole.weight.data.split(rows_of_each), strict=True):
        weight.data = rows
    return whole


def _merged_packed(layers: Sequence[PackedLinear]) -> PackedLinear | None:
    first = layers[0]
    if len({(layer.codes.shape[1:], layer.scales.dtype, layer.four_bits) for layer in layers}) > 1:
        return None
    whole = PackedLinear(*(torch.cat([getattr(layer, name) for layer in layers]) for name in ("codes", "scales")))
    whole.four_bits, whole.kernels = first.four_bits, first.kernels
    rows = [len(layer.codes) for layer in layers]
    for layer, codes, scales in zip(layers, whole.codes.split(rows), whole.scales.split(rows), strict=True):
        layer.codes, layer.scales = codes, scales
    return whole


def _outputs(layer: nn.Module) -> int:
    return layer.shape[0] if isinstance(layer, PackedLinear) else cast(nn.Linear, layer).out_features
