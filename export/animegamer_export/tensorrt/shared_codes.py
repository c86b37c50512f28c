"""Rewrites weight-only codes that several products read into a form that TensorRT-RTX can build.

Version 1.7.1 crashes on two cases, found by experiment (docs/TENSORRT.md): 4-bit codes, and 8-bit codes of three
matrices (query, key, value) with the same inputs. The rewrites do not change the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from animegamer_export.onnx_io.read import add_weight

FOUR_BITS = frozenset({ir.DataType.INT4, ir.DataType.UINT4})
PRODUCTS = frozenset({"MatMul", "Gemm"})
FUSED = 2
"""At most this many matrices with the same inputs may stay in 8 bits."""


def separate_shared_codes(model: ir.Model) -> None:
    """4 bits: dequantise to float32. 8 bits: store the third of three matrices over the same inputs at 16 bits."""
    by_inputs: dict[frozenset[ir.Value], list[ir.Node]] = {}
    for node in list(model.graph):
        products = _products(node)
        if len(products) < 2:
            continue
        codes = node.inputs[0]
        assert codes is not None
        if codes.dtype in FOUR_BITS:
            _through_float(model.graph, node)
        else:
            by_inputs.setdefault(frozenset(_input(product) for product in products), []).append(node)
    for nodes in by_inputs.values():
        for node in nodes[FUSED:]:
            _store(model.graph, node)


def _products(node: ir.Node) -> Sequence[ir.Node]:
    """The products of a weight's codes with unquantised activations; empty for other nodes."""
    if node.op_type != "DequantizeLinear" or node.inputs[0] is None or node.inputs[0].const_value is None:
        return ()
    found = [user for user, place in node.outputs[0].uses() if user.op_type in PRODUCTS and place == 1]
    makers = [_input(user).producer() for user in found]
    return () if any(maker is not None and maker.op_type == "DequantizeLinear" for maker in makers) else found


def _input(product: ir.Node) -> ir.Value:
    value = product.inputs[0]
    assert value is not None
    return value


def _through_float(graph: ir.Graph, node: ir.Node) -> None:
    read, half = node.outputs[0], node.outputs[0].dtype
    assert half is not None
    scales = _numbers(node.inputs[1]).astype(np.float32)
    node.replace_input_with(1, add_weight(graph, scales, f"{read.name}.scales"))
    users = list(read.uses())
    cast = ir.node("Cast", [read], {"to": int(half)})
    cast.outputs[0].name, cast.outputs[0].dtype, cast.outputs[0].shape = f"{read.name}.read", half, read.shape
    read.dtype = ir.DataType.FLOAT
    for user, place in users:
        user.replace_input_with(place, cast.outputs[0])
    graph.insert_after(node, cast)


def _store(graph: ir.Graph, node: ir.Node) -> None:
    read = node.outputs[0]
    assert read.dtype is not None and not node.attributes.get_int("block_size", 0)
    codes, scales = _numbers(node.inputs[0]), _numbers(node.inputs[1])
    along = [-1 if axis == node.attributes.get_int("axis", 1) else 1 for axis in range(codes.ndim)]
    weight = (codes.astype(np.float32) * scales.astype(np.float32).reshape(along)).astype(read.dtype.numpy())
    read.replace_all_uses_with(add_weight(graph, weight, f"{read.name}.stored", read.dtype))
    graph.remove(node, safe=True)


def _numbers(value: ir.Value | None) -> np.ndarray:
    assert value is not None and value.const_value is not None
    return np.asarray(value.const_value.numpy())
