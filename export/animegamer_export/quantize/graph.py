"""Finds the matrices of an ONNX graph: weights that are only used as the second factor of products.

A weight may pass through a Cast and a Transpose before its products.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
_ANONYMOUS = re.compile(r"val_\d+")
_PREDICTOR_ORDER = (
    "attention.query",
    "attention.key",
    "attention.value",
    "attention.output",
    "mlp.gate",
    "mlp.up",
    "mlp.down",
)
"""The products of a predictor's block in the order of its forward; the exporter loses their names."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """One weight and its products.

    read: the value after the Cast, or the weight itself without a Cast. inputs_first: whether it is stored [inputs,
    outputs], as for MatMul, or [outputs, inputs], as in torch's Linear.
    """

    name: str
    weight: ir.Value
    read: ir.Value
    uses: tuple[ir.Node, ...]
    inputs_first: bool

    @property
    def dtype(self) -> ir.DataType:
        """Dtype of the products."""
        found = self.read.dtype or self.weight.dtype
        assert found is not None
        return found

    @property
    def width(self) -> int:
        """The number of inputs."""
        tensor = self.weight.const_value
        assert tensor is not None
        return int(tensor.shape.numpy()[0 if self.inputs_first else 1])


def matrices(model: ir.Model) -> list[Matrix]:
    """Every matrix in the order of its first use, with a unique name."""
    order = {node: number for number, node in enumerate(model.graph)}
    found = [matrix for value in model.graph.initializers.values() if (matrix := _matrix(value)) is not None]
    found.sort(key=lambda matrix: min(order[node] for node in matrix.uses))
    names = weight_names([matrix.name for matrix in found])
    return [
        Matrix(name, one.weight, one.read, tuple(sorted(one.uses, key=order.__getitem__)), one.inputs_first)
        for name, one in zip(names, found, strict=True)
    ]


def weight_names(names: Sequence[str]) -> list[str]:
    """Names weights that lost their names: seven per block are a predictor's, a single one is the denoiser's last."""
    nameless = [name for name in names if _ANONYMOUS.fullmatch(name)]
    fresh: Iterator[str]
    if nameless and len(nameless) % len(_PREDICTOR_ORDER) == 0:
        blocks = range(len(nameless) // len(_PREDICTOR_ORDER))
        fresh = (f"blocks.{block}.{which}.weight" for block in blocks for which in _PREDICTOR_ORDER)
    elif len(nameless) == 1:
        fresh = iter(["head.output.weight"])
    else:
        return list(names)
    return [next(fresh) if name in nameless else name for name in names]


def input_of(node: ir.Node) -> ir.Value:
    """The activation of a product."""
    value = node.inputs[0]
    assert value is not None
    return value


def _matrix(weight: ir.Value) -> Matrix | None:
    tensor = weight.const_value
    if tensor is None or tensor.dtype not in FLOATS or len(tensor.shape) != 2 or weight.is_graph_output():
        return None
    read, turned, value = weight, False, weight
    while len(value.uses()) == 1:
        (node, _), *_ = value.uses()
        if node.op_type == "Cast" and value is weight and node.outputs[0].dtype in FLOATS:
            read = value = node.outputs[0]
        elif node.op_type == "Transpose" and not turned:
            turned, value = True, node.outputs[0]
        else:
            break
    uses, directions = [], set()
    for use in value.uses():
        node = use.node
        attributes = node.attributes
        if use.idx != 1 or node.domain or node.op_type not in ("MatMul", "Gemm") or value.is_graph_output():
            return None
        plain = attributes.get_float("alpha", 1.0) == attributes.get_float("beta", 1.0) == 1.0
        if not plain or _flag(node, "transA"):
            return None
        uses.append(node)
        directions.add(_flag(node, "transB") == turned)
    if len(directions) != 1:
        return None
    name = (weight.name or "").removesuffix(".fp16")
    return Matrix(name, weight, read, tuple(uses), directions.pop())


def _flag(node: ir.Node, name: str) -> bool:
    return name in node.attributes and node.attributes[name].as_int() == 1
