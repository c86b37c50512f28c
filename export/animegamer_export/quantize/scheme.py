"""The precisions by name: how a weight is stored and which operator reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from animegamer_rt.bundle.config import suggest_only
from animegamer_rt.errors import ConfigError

BLOCK = 64
"""Weights per scale, along the inputs: bitsandbytes' default for NF4, and the fastest size to build in TensorRT."""

Form = Literal["stored", "bnb4", "nbits", "dequantized", "quantized inputs", "dynamic"]
"""stored: another float type and a Cast. bnb4, nbits: onnxruntime's MatMulBnb4 and MatMulNBits. dequantized: the
standard's DequantizeLinear before the product. quantized inputs: the same, and the activations through Q and DQ.
dynamic: onnxruntime's DynamicQuantizeMatMul, which computes each input's range."""


_CODE_BYTES: Mapping[str, float] = MappingProxyType({"fp16": 2.0, "bf16": 2.0, "nf4": 0.5, "int4": 0.5})


@dataclass(frozen=True, slots=True)
class Scheme:
    """One precision. `block` weights share a scale; None: one scale per output channel (or none at all)."""

    name: str
    form: Form
    code: Literal["fp16", "bf16", "nf4", "int8", "int4", "fp8"]
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
            Scheme("nf4", "bnb4", "nf4", BLOCK),
            Scheme("int8", "nbits", "int8", BLOCK),
            Scheme("int4", "nbits", "int4", BLOCK),
            Scheme("int8-qdq", "dequantized", "int8"),
            Scheme("int4-qdq", "dequantized", "int4", BLOCK),
            Scheme("fp8", "quantized inputs", "fp8"),
            Scheme("w8a8", "quantized inputs", "int8"),
            Scheme("int8-dynamic", "dynamic", "int8"),
        )
    }
)
"""Those that end in -qdq, fp8 and w8a8 use standard operators, which TensorRT reads; nf4, int8, int4 and int8-dynamic
use onnxruntime's own."""


def scheme(name: str, block: int | None = None) -> Scheme:
    """The scheme of that name, with another block size if given. Raises ConfigError."""
    if name not in SCHEMES:
        raise ConfigError(f"unknown precision {name!r}", expected=", ".join(SCHEMES), do=suggest_only(name, SCHEMES))
    found = SCHEMES[name]
    if block is None:
        return found
    if found.block is None or block < 16 or block & (block - 1):
        raise ConfigError(
            f"{name} has no blocks of {block}", expected="a power of two from 16, for nf4, int8, int4 or int4-qdq"
        )
    return replace(found, block=block)
