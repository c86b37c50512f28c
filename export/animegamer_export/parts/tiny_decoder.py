"""Writes a tiny decoder's two ONNX parts, first and next, with shared weights; they output pixels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from animegamer_export.onnx_io.write import ExportResult, Graph, Precision, check_outputs, export_copy, write
from animegamer_rt.bundle.roles import TINY_DECODER, VAE, graph_names
from animegamer_rt.models.tiny_decoder import TinyDecoder

from .vae import clip_cases, pixels

CACHE_TOLERANCE = 1e-3


def export_tiny_decoder(
    decoder: TinyDecoder, latent: Tensor, folder: Path, part: str, precision: Precision = "fp16"
) -> ExportResult:
    """Writes <part>_first.onnx, <part>_next.onnx and <part>.weights; checks both chunks in two pixel formats.

    latent: f32 [1, 5, 16, h, w] as the denoiser gives it. Raises BundleError if the outputs of onnxruntime and torch
    differ.
    """
    decoder, names = export_copy(decoder, precision), graph_names(VAE, part)
    with torch.no_grad():
        scale = decoder.size.scale
        cases = list(clip_cases(lambda chunk, caches: decoder(chunk[0] / scale, caches), latent, names))
        graphs = []
        for name in names:
            case = next(case for graph, case in cases if graph == name)
            axes = {"channel_order": {0: "channels"}}
            graphs.append(Graph(name, TinyGraph(decoder), case.inputs, list(case.outputs), axes))
        written = write(folder, graphs, f"{part}.weights", precision)
        errors = check_outputs(folder, cases, CACHE_TOLERANCE)
    return ExportResult({name: replace(one, network=TINY_DECODER) for name, one in written.items()}, errors)


class TinyGraph(nn.Module):
    """The decoder from the denoiser's latent to pixels; with caches the last chunk, which leaves none."""

    def __init__(self, decoder: TinyDecoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, latent: Tensor, channel_order: Tensor, flip: Tensor, *caches: Tensor) -> tuple[Tensor, ...]:
        """latent [1, t, 16, h, w], the chunk before's caches (none at first) -> frames, and new caches."""
        frames, kept = self.decoder(latent[0] / self.decoder.size.scale, list(caches) or None)
        shown = pixels(frames, channel_order, flip)
        return (shown,) if caches else (shown, *kept)
