"""Replaces a weight in a graph by its codes and scales, with the operators that read them."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from animegamer_export.onnx_io.data_file import DataFile
from animegamer_export.onnx_io.read import add_weight
from animegamer_export.quantize.blocks import Array, Quantized
from animegamer_export.quantize.graph import Matrix, input_of
from animegamer_export.quantize.scheme import Scheme

INT4 = np.dtype(ml_dtypes.int4)


@dataclass(frozen=True, slots=True)
class Ranges:
    """Scales of a matrix's activations, one per product, and smoothing factors [K], if any.

    The weight is multiplied by `factors` before it is quantised; the activations are divided by them.
    """

    scales: tuple[float, ...]
    factors: Array | None = None


def convert(
    graph: ir.Graph, matrix: Matrix, made: Quantized, scheme: Scheme, data: DataFile, ranges: Ranges | None = None
) -> None:
    """Replaces one weight by codes and scales."""
    _dequantize(graph, matrix, made, scheme, data)
    if ranges is not None:
        _quantize_inputs(graph, matrix, scheme, ranges)
    _remove_weight(graph, matrix.weight)


def _dequantize(graph: ir.Graph, matrix: Matrix, made: Quantized, scheme: Scheme, data: DataFile) -> None:
    """Dequantises the weight in its own layout, so that the products need no change."""
    codes, scales, axis = made.codes, made.scales, 0
    if scheme.form != "stored" and scheme.block:
        axis = 1
    if matrix.inputs_first:
        codes, axis = codes.T, 1 - axis
        scales = scales.T if scales.ndim == 2 else scales
    stored = data.value(np.ascontiguousarray(codes), f"{matrix.name}.{scheme.name}", _onnx_type(codes.dtype))
    graph.register_initializer(stored)
    if scheme.form == "stored":
        node = ir.node("Cast", [stored], {"to": matrix.dtype})
    else:
        scale_name = f"{matrix.name}.scales"
        scale = data.value(np.ascontiguousarray(scales.astype(matrix.dtype.numpy())), scale_name)
        graph.register_initializer(scale)
        blocked = {"block_size": scheme.block} if scheme.block else {}
        node = ir.node("DequantizeLinear", [stored, scale], {"axis": axis, **blocked})
    out = node.outputs[0]
    out.dtype, out.shape = matrix.dtype, matrix.weight.shape
    ir.convenience.replace_all_uses_with(matrix.read, out)
    graph.insert_before(graph[0], node)


def _quantize_inputs(graph: ir.Graph, matrix: Matrix, scheme: Scheme, ranges: Ranges) -> None:
    """Puts QuantizeLinear and DequantizeLinear before each product; products with equal input and scale share them."""
    if len(ranges.scales) != len(matrix.uses):
        ranges = Ranges((max(ranges.scales),) * len(matrix.uses), ranges.factors)
    zero_type = np.dtype(ml_dtypes.float8_e4m3fn) if scheme.code == "fp8" else np.dtype(np.int8)
    for node, number in zip(matrix.uses, ranges.scales, strict=True):
        source = input_of(node)
        name = f"{source.name}.{scheme.name}"
        if ranges.factors is not None:
            inverse = np.asarray(1 / ranges.factors, matrix.dtype.numpy())
            smooth = ir.node("Mul", [source, _constant(graph, inverse, f"{matrix.name}.smooth")])
            _copy_type(smooth.outputs[0], source)
            graph.insert_before(node, smooth)
            source, name = smooth.outputs[0], f"{matrix.name}.{source.name}.{scheme.name}"
        scale = _constant(graph, np.asarray(number, matrix.dtype.numpy()), f"{name}.scale")
        zero = _constant(graph, np.zeros((), zero_type), f"{scheme.name}.zero")
        pair = _existing_pair(source, scale)
        if pair is None:
            quantize = ir.node("QuantizeLinear", [source, scale, zero])
            back = ir.node("DequantizeLinear", [quantize.outputs[0], scale, zero])
            quantize.outputs[0].shape, quantize.outputs[0].dtype = source.shape, _onnx_type(zero_type)
            _copy_type(back.outputs[0], source)
            graph.insert_before(node, [quantize, back])
            pair = back.outputs[0]
        node.replace_input_with(0, pair)


def _existing_pair(source: ir.Value, scale: ir.Value) -> ir.Value | None:
    for node, _ in source.uses():
        if node.op_type == "QuantizeLinear" and node.inputs[1] is scale:
            ((after, _),) = node.outputs[0].uses()
            return after.outputs[0]
    return None


def _constant(graph: ir.Graph, array: npt.NDArray[np.generic], name: str) -> ir.Value:
    """A small initializer, shared with an equal one of the same name."""
    held = graph.initializers.get(name)
    if held is not None and held.const_value is not None and np.array_equal(held.const_value.numpy(), array):
        return held
    if held is not None:
        name = f"{name}.{len(graph.initializers)}"
    return add_weight(graph, array, name, _onnx_type(array.dtype))


def _remove_weight(graph: ir.Graph, weight: ir.Value) -> None:
    """Removes a weight, and the Cast and Transpose after it, if unused."""
    for node in [node for node, _ in weight.uses() if node.op_type in ("Cast", "Transpose")]:
        _remove_weight(graph, node.outputs[0])
        if not node.outputs[0].uses():
            graph.remove(node, safe=True)
    if weight.name is not None and weight.name in graph.initializers and not weight.uses():
        del graph.initializers[weight.name]


def _copy_type(value: ir.Value, like: ir.Value) -> None:
    value.type, value.shape = like.type, like.shape


def _onnx_type(dtype: np.dtype[np.generic]) -> ir.DataType:
    return ir.DataType.from_numpy(dtype)
