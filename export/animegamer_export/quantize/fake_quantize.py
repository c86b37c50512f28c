"""Torch weights rounded like a quantised part's, so that torch computes what the part should.

The codes are recomputed from the weights: quantising is deterministic. Only the part's tensor names are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from animegamer_export.onnx_io.read import open_graph
from animegamer_export.parts.streamed.parts import Weights
from animegamer_export.parts.streamed.write import STORED, TRANSPOSED

from .blocks import quantize_matrix
from .scheme import SCHEMES, Scheme
from .weights import TABLE_NAMES

_TOWERS_TABLES = ("relative_bias", "mean", "deviation")
Parameter = Callable[[str], tuple[str, object]]


@dataclass(frozen=True, slots=True)
class FakeQuantizedWeights:
    """`Weights` of two or more axes rounded to 16 bits; vectors and tables stay exact.

    schemes: parameter -> scheme, for matrices that are then quantised.
    """

    weights: Weights
    dtype: torch.dtype
    schemes: Mapping[str, Scheme] = field(default_factory=dict)

    def merged(self, parameter: str, dtype: torch.dtype) -> Tensor:
        """One parameter with the part's rounding."""
        weight = self.weights.merged(parameter, torch.float32)
        if weight.ndim < 2 or TABLE_NAMES.search(parameter) or parameter in _TOWERS_TABLES:
            return weight.to(dtype)
        weight, scheme = self.rounded(weight), self.schemes.get(parameter)
        return (weight if scheme is None else torch.from_numpy(quantize_matrix(weight.numpy(), scheme).weight)).to(
            dtype
        )

    def rounded(self, weight: Tensor) -> Tensor:
        """The weight rounded to 16 bits, in float32."""
        return weight.to(self.dtype).float()


def fake_quantized(
    weights: Weights, path: Path, precision: str | None, parameter: Parameter, twice: bool = False
) -> FakeQuantizedWeights | None:
    """The weights with a part's rounding; None for a part in float32, or one that quantises activations too.

    parameter: from a weight's name in the graph to the network's parameter (`parts.streamed.parts`). twice: the part
    has 16 bits and was made from one in fp16.
    """
    if precision in ("fp16", "bf16"):
        return FakeQuantizedWeights(
            FakeQuantizedWeights(weights, torch.float16) if twice else weights, STORED[precision]
        )
    scheme = SCHEMES.get(precision or "")
    if scheme is None or scheme.form != "dequantized":
        return None
    return FakeQuantizedWeights(weights, torch.float16, _schemes(path, scheme, parameter))


def _schemes(path: Path, scheme: Scheme, parameter: Parameter) -> dict[str, Scheme]:
    found = {}
    for node in open_graph(path).graph:
        codes = node.inputs[0] if node.op_type == "DequantizeLinear" else None
        if codes is not None:
            name = str(codes.name).removesuffix(f".{scheme.name}").removesuffix(TRANSPOSED)
            found[parameter(name)[0]] = scheme
    return found
