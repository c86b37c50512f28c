"""The precisions by name: how a weight is stored and which operator reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from animegamer_rt.bundle.config import suggest_only
from animegamer_rt.errors import ConfigError

BLOCK = 64
"""Weights per scale, along the inputs: the fastest size to build in TensorRT."""

Form = Literal["stored", "dequantized", "quantized inputs"]
"""stored: another float type and a Cast. dequantized: DequantizeLinear before the product. quantized inputs: the same,
and the activations through QuantizeLinear and DequantizeLinear."""


_CODE_BYTES: Mapping[str, float] = MappingProxyType({"fp16": 2.0, "bf16": 2.0, "int4": 0.5})


@dataclass(frozen=True, slots=True)
class Scheme:
    """One precision. `block` weights share a scale; None: one scale per output channel (or none at all)."""

    name: str
    form: Form
    code: Literal["fp16", "bf16", "int8", "int4", "fp8"]
    block: int | None = None

    @property
    def calibrated(self) -> bool:
        """Whether it needs activation ranges."""
        return self.form == "quantized inputs"

    @property
    def bytes_a_weight(self) -> float:
        """Average bytes per weight, scales included."""
        return _CODE_BYTES.get(self.code, 1.0) + (4 / self.block if self.block else 0.01)


SCHEMES: Mapping[str, Scheme] = MappingProxyType(
    {
        scheme.name: scheme
        for scheme in (
            Scheme("fp16", "stored", "fp16"),
            Scheme("bf16", "stored", "bf16"),
            Scheme("int8-qdq", "dequantized", "int8"),
            Scheme("int4-qdq", "dequantized", "int4", BLOCK),
            Scheme("fp8", "quantized inputs", "fp8"),
            Scheme("w8a8", "quantized inputs", "int8"),
        )
    }
)
"""All use standard operators, which onnxruntime and TensorRT read."""


def scheme(name: str) -> Scheme:
    """The scheme of that name. Raises ConfigError."""
    if name not in SCHEMES:
        raise ConfigError(f"unknown precision {name!r}", expected=", ".join(SCHEMES), do=suggest_only(name, SCHEMES))
    return SCHEMES[name]
