"""Rewrites a bundle's ONNX part for TensorRT: strongly typed, with half precision inside.

TensorRT's builders follow the types in the file (they have no precision flags) and have no fp32 attention kernel, so
the precision of each node is decided here:

- matrix products, convolutions and attention, and everything between them, are half;
- everything before the first and after the last of them is float32: timesteps, rotary angles, solver, pixels;
- statistics (means, roots, sines) and the squares that feed them are float32: the vae would overflow;
- inputs and outputs that stay on the GPU between parts (attention and vae caches) are half.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import onnx_ir as ir

from animegamer_export.onnx_io.read import add_weight, open_graph
from animegamer_export.tensorrt.shared_codes import separate_shared_codes
from animegamer_rt.errors import BundleError

HALF_OPERATORS = frozenset({"MatMul", "Gemm", "Conv", "Attention"})
FP32_OPERATORS = frozenset({"ReduceMean", "Sqrt", "Reciprocal", "Sin", "Cos", "Range"})
UNTYPED_OPERATORS = frozenset({"Constant", "ConstantOfShape", "RandomNormal"})
"""Their output type is an attribute; they are not changed."""
QUANTIZED = frozenset({"QuantizeLinear", "DequantizeLinear"})
UNTOUCHED_INPUTS = {"Resize": (1, 2)}
"""Inputs that are always float32 (roi, scales)."""
FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16})
HALVES = {"fp16": ir.DataType.FLOAT16, "bf16": ir.DataType.BFLOAT16}


def strongly_typed(source: Path, target: Path, precision: str, resident: Iterable[str] = ()) -> None:
    """Writes the rewritten `source` to `target`, which refers to the source's data files.

    precision: fp16 or bf16. resident: prefixes of the inputs and outputs that stay on the GPU. The target must be in
    the source's folder.
    """
    assert target.parent == source.parent, "external data must be in the same folder"
    model = open_graph(source)
    rewrite(model, HALVES[precision], tuple(resident))
    ir.save(model, target)


def rewrite(model: ir.Model, half: ir.DataType, resident: tuple[str, ...] = ()) -> None:
    """`strongly_typed` in place."""
    _standard_attention(model)
    _bytes_at_the_edge(model.graph)
    stored = _stored_weights(model, half)
    half_nodes = _half_nodes(model.graph, resident)
    _Casts(model.graph, half, resident, stored, half_nodes).run()
    separate_shared_codes(model)
    for name in [name for name, value in model.graph.initializers.items() if not value.uses()]:
        if not model.graph.initializers[name].is_graph_output():
            del model.graph.initializers[name]
    model.graph.sort()


def _standard_attention(model: ir.Model) -> None:
    """onnxruntime's MultiHeadAttention (no mask, no bias) -> the standard's Attention: the same three inputs."""
    for node in list(model.graph):
        if node.domain == "com.microsoft" and node.op_type == "MultiHeadAttention":
            heads = node.attributes["num_heads"].as_int()
            new = ir.node("Attention", node.inputs[:3], {"q_num_heads": heads, "kv_num_heads": heads})
            _put_in_place(model.graph, node, new)
    own = sorted({node.op_type for node in model.graph if node.domain == "com.microsoft"})
    if own:
        raise BundleError(
            "the part uses onnxruntime's own operators",
            found=", ".join(own),
            expected="standard ONNX, as in int4-qdq, int8-qdq, fp8 and w8a8",
            do="quantise for TensorRT separately: animegamer-rt quantize --precision predictor=int4-qdq",
        )
    model.opset_imports.pop("com.microsoft", None)


def _bytes_at_the_edge(graph: ir.Graph) -> None:
    """Replaces uint8 tensors, which TensorRT allows as outputs only, by float32 with a final Cast."""
    for name, value in list(graph.initializers.items()):
        if value.dtype == ir.DataType.UINT8 and value.const_value is not None:
            value.const_value = ir.tensor(value.const_value.numpy().astype("float32"), name=name)
            value.dtype = ir.DataType.FLOAT
    for node in list(graph):
        if node.op_type == "Cast" and node.outputs[0].dtype == ir.DataType.UINT8:
            # The standard's Cast truncates; pixels are never negative, so Floor is equivalent.
            _put_in_place(graph, node, ir.node("Floor", node.inputs))
    inside = [value for node in graph for value in node.outputs if value.dtype == ir.DataType.UINT8]
    for value in inside:
        value.dtype = ir.DataType.FLOAT
    for index, value in enumerate(graph.outputs):
        if value in inside:
            node = ir.node("Cast", [value], {"to": ir.DataType.UINT8})
            cast = node.outputs[0]
            cast.name, cast.dtype, cast.shape = value.name, ir.DataType.UINT8, value.shape
            value.name = f"{value.name}.whole"
            graph.append(node)
            graph.outputs[index] = cast


def _put_in_place(graph: ir.Graph, old: ir.Node, new: ir.Node) -> None:
    before, after = old.outputs[0], new.outputs[0]
    after.name, after.type, after.shape = before.name, before.type, before.shape
    graph.insert_before(old, new)
    before.replace_all_uses_with(after, replace_graph_outputs=True)
    graph.remove(old, safe=True)


def _stored_weights(model: ir.Model, half: ir.DataType) -> set[ir.Node]:
    """Casts of weights stored at 16 bits: each now casts to `half`, or is removed if the weight has that type."""
    stored = set()
    for node in list(model.graph):
        source = node.inputs[0] if node.inputs else None
        if node.op_type != "Cast" or source is None or source.const_value is None or source.dtype not in FLOATS:
            continue
        if source.dtype == half:
            node.outputs[0].replace_all_uses_with(source)
            model.graph.remove(node, safe=True)
        else:
            node.attributes["to"] = ir.AttrInt64("to", int(half))
            node.outputs[0].dtype = half
            stored.add(node)
    return stored


def _half_nodes(graph: ir.Graph, resident: tuple[str, ...]) -> set[ir.Node]:
    """The nodes that compute in half precision, by the rules at the top of this file."""
    nodes = list(graph)
    kept_on_device = (
        {value for value in graph.outputs if (value.name or "").startswith(resident)} if resident else set()
    )
    leads: set[ir.Node] = set()
    for node in reversed(nodes):
        used = any(user in leads for value in node.outputs for user, _ in value.uses())
        if node.op_type in HALF_OPERATORS or used or any(value in kept_on_device for value in node.outputs):
            leads.add(node)
    only_statistics: set[ir.Node] = set()
    for node in reversed(nodes):
        users = [user for value in node.outputs for user, _ in value.uses()]
        if (
            node.op_type not in HALF_OPERATORS
            and users
            and all(user.op_type == "ReduceMean" or user in only_statistics for user in users)
        ):
            only_statistics.add(node)
    half_nodes: set[ir.Node] = set()
    half_values = {value for value in graph.inputs if resident and (value.name or "").startswith(resident)}
    for node in nodes:
        if node in only_statistics or node.op_type in FP32_OPERATORS | UNTYPED_OPERATORS or node not in leads:
            continue
        floats = [value for value in _float_inputs(node) if value.const_value is None]
        if node.op_type in HALF_OPERATORS or not floats or any(value in half_values for value in floats):
            half_nodes.add(node)
            half_values.update(node.outputs)
    return half_nodes


def _float_inputs(node: ir.Node) -> list[ir.Value]:
    untouched = UNTOUCHED_INPUTS.get(node.op_type, ())
    return [
        value
        for index, value in enumerate(node.inputs)
        if value is not None and index not in untouched and value.dtype in FLOATS
    ]


class _Casts:
    """Casts inputs to the type of each node, with one Cast per value and type."""

    def __init__(
        self,
        graph: ir.Graph,
        half: ir.DataType,
        resident: tuple[str, ...],
        stored: set[ir.Node],
        half_nodes: set[ir.Node],
    ) -> None:
        self.graph, self.half, self.resident = graph, half, resident
        self.stored, self.half_nodes = stored, half_nodes
        self.made: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}

    def run(self) -> None:
        for value in self.graph.inputs:
            if self._stays(value):
                value.dtype = self.half
        for node in list(self.graph):
            if node in self.stored or node.op_type in UNTYPED_OPERATORS:
                continue
            wanted = self.half if node in self.half_nodes else ir.DataType.FLOAT
            self._feed(node, wanted)
            for value in node.outputs:
                if value.dtype in FLOATS:
                    value.dtype = wanted
            if node.op_type == "Cast" and node.outputs[0].dtype in FLOATS:
                node.attributes["to"] = ir.AttrInt64("to", int(wanted))
        for index, value in enumerate(self.graph.outputs):
            wanted = self.half if self._stays(value) else ir.DataType.FLOAT
            if value.dtype in FLOATS and value.dtype != wanted:
                self._turn_output(index, value, wanted)

    def _stays(self, value: ir.Value) -> bool:
        return bool(self.resident) and value.dtype in FLOATS and (value.name or "").startswith(self.resident)

    def _feed(self, node: ir.Node, wanted: ir.DataType) -> None:
        untouched = UNTOUCHED_INPUTS.get(node.op_type, ())
        if node.op_type == "Cast" and node.outputs[0].dtype not in FLOATS:
            return
        for index, value in enumerate(node.inputs):
            if value is None or index in untouched or value.dtype not in FLOATS or value.dtype == wanted:
                continue
            if node.op_type == "Cast":
                continue
            node.replace_input_with(index, self._cast(value, wanted, node.op_type in QUANTIZED))

    def _cast(self, value: ir.Value, to: ir.DataType, scale: bool = False) -> ir.Value:
        if (value, to) not in self.made:
            if scale and value.const_value is not None:
                self.made[value, to] = self._constant(value, to)
                return self.made[value, to]
            node = ir.node("Cast", [value], {"to": to})
            new = node.outputs[0]
            new.name, new.dtype, new.shape = f"{value.name}.as_{to.name.lower()}", to, value.shape
            producer = value.producer()
            if producer is None:
                self.graph.insert_before(self.graph[0], node)
            else:
                self.graph.insert_after(producer, node)
            self.made[value, to] = new
        return self.made[value, to]

    def _constant(self, value: ir.Value, to: ir.DataType) -> ir.Value:
        """A scale in another type: TensorRT requires constants, not the output of a Cast."""
        assert value.const_value is not None
        name = f"{value.name}.as_{to.name.lower()}"
        return add_weight(self.graph, value.const_value.numpy().astype(to.numpy()), name, to)

    def _turn_output(self, index: int, value: ir.Value, to: ir.DataType) -> None:
        name = value.name
        value.name = f"{name}.inside"
        turned = self._cast(value, to)
        turned.name = name
        self.graph.outputs[index] = turned
