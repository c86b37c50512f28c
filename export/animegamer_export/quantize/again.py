"""A network's weights rounded again as those of a quantised part were, to compute in torch what the part should.

Knows the names that quantising gives; it reads no codes, as the same weight has the same codes every time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir
import torch
from torch import Tensor

from animegamer_export.large.parts import Weights
from animegamer_export.large.write import TRANSPOSED
from animegamer_export.open_graph import open_graph
from animegamer_export.quantize.blocks import create
from animegamer_export.quantize.scheme import SCHEMES, Scheme
from animegamer_export.quantize.weights import TABLES

_OPERATORS = ("DequantizeLinear", "MatMulNBits", "MatMulBnb4")
_FORMS = ("dequantized", "nbits", "bnb4")


class RoundedAgain:
    """`Weights` of the part in the file: its matrices quantised, all else of two axes and more in 16 bits.

    `parameter` says which of the network's weights one of the graph is (`large.parts`).
    """

    def __init__(self, weights: Weights, path: Path, scheme: Scheme, parameter: Callable[[str], tuple[str, object]]):
        self._weights = weights
        self._schemes: dict[str, Scheme] = {}
        for node in open_graph(path).graph:
            if node.op_type not in _OPERATORS:
                continue
            codes = next(value for value in node.inputs if value is not None and _codes_of(value, scheme))
            name = str(codes.name).removesuffix(f".{scheme.name}").removesuffix(TRANSPOSED)
            block = node.attributes.get_int("block_size", 0)
            self._schemes[parameter(name)[0]] = replace(scheme, block=block or None)

    def merged(self, parameter: str, dtype: torch.dtype) -> Tensor:
        """One parameter as the part has it."""
        weight = self._weights.merged(parameter, torch.float32)
        if weight.ndim < 2 or TABLES.search(parameter):
            return weight.to(dtype)
        weight = weight.half().float()
        scheme = self._schemes.get(parameter)
        return (weight if scheme is None else torch.from_numpy(create(weight.numpy(), scheme).weight)).to(dtype)


def rounded_again(
    weights: Weights, path: Path, precision: str | None, parameter: Callable[[str], tuple[str, object]]
) -> RoundedAgain | None:
    """None for a part that is not quantised, or that rounds its activations too: torch has nothing to compute then."""
    scheme = SCHEMES.get(precision or "")
    return RoundedAgain(weights, path, scheme, parameter) if scheme is not None and scheme.form in _FORMS else None


def _codes_of(value: ir.Value, scheme: Scheme) -> bool:
    return str(value.name).endswith(f".{scheme.name}")
