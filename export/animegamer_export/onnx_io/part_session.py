"""Runs one part of a bundle in onnxruntime with little memory, to compare its outputs.

Weights stay memory-mapped. Attention runs as a fused operator that stores no scores, and the vae decodes a small image:
at full size, either would take more memory than the weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnxruntime import GraphOptimizationLevel

from animegamer_export.onnx_io.sessions import open_model, plain_options
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.roles import VAE

from .read import add_weight, open_graph

Array = npt.NDArray[Any]

SMALL_LATENT = (8, 12)
"""Height and width of the largest latent decoded: any size uses every weight. At 60 x 90 in float32 the caches alone
are 5.2 GiB, and an activation before the last stage is 3 GiB, several of which are alive at once."""

_ROWS_AND_COLUMNS = {4: [2, 3], 5: [2, 4]}
"""Position of height and width by number of axes: [frames, C, rows, columns], [frames, C, latent rows, 1 to 8,
columns]."""


class PartSession:
    """A part run on the CPU exactly as its graph specifies: no weight is folded, packed or copied."""

    def __init__(self, bundle: Bundle, part: str) -> None:
        path, options = bundle.part_path(part), plain_options()
        options.add_session_config_entry("session.disable_prepacking", "1")
        # An arena keeps freed memory, in blocks of twice the requested size.
        options.enable_cpu_mem_arena = False
        # Beyond these, weights change their layout, and onnxruntime 1.23 ends the process.
        options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        model = open_graph(path)
        use_flash_attention(model)
        if bundle.graph_roles.get(part) == VAE:
            shrink_picture(model.graph)
        self.session = open_model(model, path.parent, options, disabled_optimizers=["ConstantFolding"])
        self.outputs = [value.name for value in self.session.get_outputs()]

    def run(self, outputs: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """The named outputs."""
        found: list[Array] = self.session.run(list(outputs), dict(feeds))
        return found


def use_flash_attention(model: ir.Model) -> None:
    """Replaces unmasked Attention by MultiHeadAttention: the former stores all scores, 11.7 GB at full size."""
    for node in list(model.graph):
        masked = len(node.inputs) > 3 and any(value is not None for value in node.inputs[3:])
        if node.op_type != "Attention" or node.domain or masked or "q_num_heads" not in node.attributes:
            continue
        new = ir.node(
            "MultiHeadAttention",
            node.inputs[:3],
            {"num_heads": node.attributes["q_num_heads"].as_int()},
            domain="com.microsoft",
        )
        new.outputs[0].name, new.outputs[0].type = node.outputs[0].name, node.outputs[0].type
        model.graph.insert_before(node, new)
        node.outputs[0].replace_all_uses_with(new.outputs[0])
        model.graph.remove(node, safe=True)
        model.opset_imports["com.microsoft"] = 1


def latent_size(height: int, width: int) -> tuple[int, int]:
    """Height and width of the latent to decode, for a bundle whose latent is height x width."""
    return min(height, SMALL_LATENT[0]), min(width, SMALL_LATENT[1])


def shrink_picture(graph: ir.Graph) -> None:
    """Resizes the vae's graph to a latent of `latent_size`: its inputs, shape constants and last few nodes."""
    sized = [value for value in graph.inputs if value.name == "latent" or (value.name or "").startswith("cache_")]
    old = np.array(_lengths(sized[0])[-2:])
    new = np.array(latent_size(*old.tolist()))
    for given in sized:
        lengths = np.array(_lengths(given))
        lengths[-2:] = lengths[-2:] * new // old
        given.shape = ir.Shape(lengths.tolist())
    for node in graph:
        for index, value in enumerate(node.inputs):
            if value is None or value.const_value is None:
                continue
            if node.op_type in ("Expand", "Reshape") and index == 1:
                shape = value.const_value.numpy().copy()
                at = _ROWS_AND_COLUMNS.get(len(shape))
                # Shapes of one row or one pixel mean something else.
                if at is not None and min(shape[at]) > 1:
                    shape[at] = shape[at] * new // old
                    _replace(graph, node, index, shape)
            elif node.op_type == "Where":
                # The picture's rows, top-down or bottom-up.
                rows = value.const_value.numpy()
                _replace(graph, node, index, rows[rows < len(rows) * new[0] // old[0]])
            elif node.op_type == "Concat" and len(value.const_value.shape) == 4:
                # A small picture's alpha channel.
                opacity = value.const_value.numpy()
                height, width = np.array(opacity.shape[2:]) * new // old
                _replace(graph, node, index, opacity[:, :, :height, :width])
        for made in node.outputs:
            made.shape = None


def _lengths(value: ir.Value) -> list[int]:
    assert value.shape is not None
    return [length for length in value.shape if isinstance(length, int)]


def _replace(graph: ir.Graph, node: ir.Node, index: int, numbers: Array) -> None:
    name = f"{node.outputs[0].name}.small.{index}"
    node.replace_input_with(index, add_weight(graph, np.ascontiguousarray(numbers), name))
