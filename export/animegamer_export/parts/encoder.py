"""Writes the encoder as an ONNX part, and the towers before it as optional parts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from animegamer_export.onnx_io.write import Case, ExportResult, Graph, Precision, check_outputs, export_copy, write
from animegamer_rt.models.encoder import Encoder

TOLERANCE = 1e-4


def export_encoder(encoder: Encoder, folder: Path, precision: Precision = "fp16") -> ExportResult:
    """Writes encoder.onnx: text_features [1, 30, C], image_features [1, 196, C] -> shot [1, 226, D]."""
    return _export("encoder", encoder, encoder_graph(encoder).inputs, "shot", folder, precision)


def encoder_graph(encoder: Encoder) -> Graph:
    """The graph to export, with example inputs."""
    size = encoder.size
    inputs = {
        "text_features": torch.randn(1, size.text_tokens, size.text_width, generator=_random()),
        "image_features": torch.randn(1, size.image_tokens, size.image_width, generator=_random()),
    }
    return Graph("encoder", encoder, inputs, ("shot",))


def export_text_tower(tower: nn.Module, folder: Path, tokens: int, precision: Precision = "fp16") -> ExportResult:
    """Writes text_tower.onnx: ids int64 [1, tokens] (0 = padding) -> text_features [1, tokens, C]."""
    ids = torch.zeros(1, tokens, dtype=torch.int64)
    ids[0, : tokens // 2] = torch.arange(1, tokens // 2 + 1)
    return _export("text_tower", tower, {"ids": ids}, "text_features", folder, precision)


def export_image_tower(
    tower: nn.Module, folder: Path, height: int, width: int, precision: Precision = "fp16"
) -> ExportResult:
    """Writes image_tower.onnx: picture [1, 3, height, width] in -1..1 -> image_features [1, 196, C]."""
    picture = torch.rand(1, 3, height, width, generator=_random()) * 2 - 1
    return _export("image_tower", tower, {"picture": picture}, "image_features", folder, precision)


def _random() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _export(
    name: str, module: nn.Module, inputs: Mapping[str, Tensor], output: str, folder: Path, precision: Precision
) -> ExportResult:
    module = export_copy(module, precision)
    with torch.no_grad():
        weights = f"{name}.weights"
        parts = write(folder, [Graph(name, module, inputs, (output,))], weights, precision)
        case = Case("random inputs", inputs, {output: module(*inputs.values())})
        return ExportResult(parts, check_outputs(folder, [(name, case)], TOLERANCE))
