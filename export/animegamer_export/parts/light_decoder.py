"""Writes a light decoder's two ONNX parts, first and next, over one file of weights, each in float32 and in 8 bits.

In 8 bits, activations have scales that calibration latents gave, and weights are quantised when onnxruntime loads them.
`linear` and `out`, which make the pixels, stay in float32: in 8 bits what stands still would flicker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.onnx.ops import symbolic

from animegamer_export.onnx_io.sessions import open_plain
from animegamer_export.onnx_io.write import ExportResult, Graph, Precision, check_outputs, export_copy, write
from animegamer_rt.backends.interface import Frames
from animegamer_rt.bundle.roles import CACHE_PREFIX, LIGHT_DECODER, VAE, graph_names
from animegamer_rt.errors import BundleError
from animegamer_rt.models.light_decoder import LightDecoder, Residual, as_frames, with_before
from animegamer_rt.models.vae import CHUNKS

from .denoiser import MAX_WEIGHT_CODE
from .vae import clip_cases, pixels

INT8_TOLERANCE = 4.0
"""Mean difference of the frames in 8 bits, of 255 levels: pocket has 1.2."""
MAX_CODE = 255
MIN_RANGE = 1e-4
"""Of a layer that gives only zeros, and of an output whose weights are all 0: a bias over these fits into 32 bits."""
SUM = "sum"
CACHE = f"{CACHE_PREFIX}00"


def export_light_decoder(
    decoder: LightDecoder, latents: Sequence[Tensor], folder: Path, part: str, precision: Precision = "fp16"
) -> ExportResult:
    """Writes <part>_first.onnx, <part>_next.onnx, both again with `_int8` in their names, and <part>.weights.

    latents: f32 [1, 5, 16, h, w] as the denoiser gives them; they give the scales of 8 bits. Raises BundleError if the
    outputs of onnxruntime and torch differ.
    """
    decoder, names = export_copy(decoder, precision), graph_names(VAE, part)
    with torch.no_grad():
        graphs = [
            graph
            for module, ending in ((LightGraph(decoder), ""), (Int8Graph(decoder, latents), "_int8"))
            for graph in light_graphs(module, latents[0], [f"{name}{ending}" for name in names])
        ]
        written = write(folder, graphs, f"{part}.weights", precision)

        def decode(chunk: Tensor, caches: list[Tensor] | None) -> tuple[Tensor, list[Tensor]]:
            return decoder(chunk[0], None if caches is None else caches[0]), [chunk[0, -1:]]

        errors = check_outputs(folder, list(clip_cases(decode, latents[0], names)), 0.0)
        paths = [folder / written[f"{name}_int8"].file for name in names]
        errors[f"{part}_int8: mean"] = _check_int8(decoder, latents[-1], paths)
    parts = {
        name: replace(written[name], int8_file=written[f"{name}_int8"].file, network=LIGHT_DECODER) for name in names
    }
    return ExportResult(parts, errors)


def _check_int8(decoder: LightDecoder, latent: Tensor, paths: Sequence[Path]) -> float:
    """The mean difference of the frames that the graphs in these files and the decoder give. Raises BundleError."""
    true: Frames = pixels(decoder(latent[0], None), torch.arange(3), torch.tensor([False])).numpy()
    first, rest = (chunk.numpy() for chunk in latent.split(CHUNKS, dim=1))
    shared = {"channel_order": np.arange(3), "flip": np.array([False])}
    frames, cache = open_plain(paths[0]).run(("frames", CACHE), {"latent": first, **shared})
    (following,) = open_plain(paths[1]).run(("frames",), {"latent": rest, **shared, CACHE: cache})
    error = float(np.abs(np.concatenate([frames, following]).astype(float) - true).mean())
    if not error <= INT8_TOLERANCE:
        what, expected = "the part in 8 bits draws other pictures", f"at most {INT8_TOLERANCE} levels"
        raise BundleError(what, where=paths[0], found=f"{error:.1f} levels apart", expected=expected)
    return error


def light_graphs(module: LightGraph, latent: Tensor, names: Sequence[str]) -> list[Graph]:
    """Both graphs to export, with the chunks of a latent as example inputs."""
    first, rest = latent.split(CHUNKS, dim=1)
    shared = {"channel_order": torch.tensor([0, 1, 2, 3]), "flip": torch.tensor([True])}
    following = {"latent": rest, **shared, CACHE: first[0, -1:]}
    axes = {"channel_order": {0: "channels"}}
    return [
        Graph(names[0], module, {"latent": first, **shared}, ("frames", CACHE), axes),
        Graph(names[1], module, following, ("frames",), axes),
    ]


class LightGraph(nn.Module):
    """The decoder from the denoiser's latent to pixels."""

    def __init__(self, decoder: LightDecoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, latent: Tensor, channel_order: Tensor, flip: Tensor, *cache: Tensor) -> tuple[Tensor, ...]:
        """latent [1, t, 16, h, w] and the chunk before's cache [1, 16, h, w], or none -> frames, and the cache."""
        before = cache[0] if cache else None
        shown = pixels(self.frames(latent[0], before), channel_order, flip)
        return (shown,) if cache else (shown, latent[0, -1:])

    def frames(self, latent: Tensor, before: Tensor | None) -> Tensor:
        """As LightDecoder.forward."""
        return cast(Tensor, self.decoder(latent, before))


class Codes(NamedTuple):
    """An activation as uint8 codes: (code - zero) x scale."""

    codes: Tensor
    scale: Tensor
    zero: Tensor


class Int8Graph(LightGraph):
    """The same with convolutions of 8-bit integers; every activation between them stays in codes."""

    def __init__(self, decoder: LightDecoder, latents: Sequence[Tensor]) -> None:
        super().__init__(decoder)
        self.names = {module: name for name, module in decoder.named_modules()}
        for name, (low, high) in activation_ranges(decoder, latents).items():
            low, high = min(low, 0.0), max(high, 0.0)
            scale = max(high - low, MIN_RANGE) / MAX_CODE
            self.register_buffer(_buffer(name, "scale"), torch.tensor(scale))
            self.register_buffer(_buffer(name, "zero"), torch.tensor(round(-low / scale), dtype=torch.uint8))

    def frames(self, latent: Tensor, before: Tensor | None) -> Tensor:
        """As LightDecoder.forward."""
        network, given = self.decoder, with_before(latent, before)
        coded = self.quantised(given)
        x = self.blocks(network.stages[0], self.convolved(coded, network.stem))
        skip = self.convolved(coded, network.skip)
        for number, upsample in enumerate(network.upsamples):
            wide = self.convolved(x, upsample)
            wide = self.added(wide, skip, SUM) if number == 0 else wide
            shuffled = wide._replace(codes=functional.pixel_shuffle(wide.codes, 2))
            x = self.blocks(network.stages[number + 1], shuffled)
        fine = functional.pixel_shuffle(network.out(dequantised(x)), 2)
        shown = functional.pixel_shuffle(network.linear(given), network.size.upscale) + fine
        return as_frames(shown, first=before is None)

    def level(self, name: str) -> tuple[Tensor, Tensor]:
        """Scale and zero of a layer's output."""
        return self.get_buffer(_buffer(name, "scale")), self.get_buffer(_buffer(name, "zero"))

    def blocks(self, blocks: nn.Module, x: Codes) -> Codes:
        for block in blocks.children():
            assert isinstance(block, Residual)
            inner = self.convolved(self.convolved(x, block.a), block.b)
            x = self.added(x, inner, self.names[block])
        return x

    def quantised(self, x: Tensor) -> Codes:
        scale, zero = self.level("")
        given = (x, scale, zero)  # onnxruntime 1.23 has no QuantizeLinear of opset 23
        codes = symbolic("com.microsoft::QuantizeLinear", given, dtype=torch.uint8, shape=x.shape, version=1)
        return Codes(codes, scale, zero)

    def convolved(self, x: Codes, layer: nn.Module) -> Codes:
        """A convolution, and the ReLU behind it if its range begins at 0."""
        assert isinstance(layer, nn.Conv2d) and layer.bias is not None
        scale, zero = self.level(self.names[layer])
        scales = layer.weight.abs().amax((1, 2, 3)).clamp_min(MIN_RANGE) / MAX_WEIGHT_CODE
        codes = torch.round(layer.weight / scales[:, None, None, None]).to(torch.int8)
        bias = torch.round(layer.bias / (scales * x.scale)).to(torch.int32)
        sides = layer.padding[0] if isinstance(layer.padding, tuple) else 0
        out = symbolic(
            "QLinearConv",
            (*x, codes, scales, torch.zeros((), dtype=torch.int8), scale, zero, bias),
            {"kernel_shape": list(layer.kernel_size), "pads": [int(sides)] * 4},
            dtype=torch.uint8,
            shape=(x.codes.shape[0], layer.out_channels, *x.codes.shape[2:]),
            version=10,
        )
        return Codes(out, scale, zero)

    def added(self, x: Codes, y: Codes, name: str) -> Codes:
        """relu(x + y)."""
        scale, zero = self.level(name)
        given = (*x, *y, scale, zero)
        out = symbolic("com.microsoft::QLinearAdd", given, dtype=torch.uint8, shape=x.codes.shape, version=1)
        return Codes(out, scale, zero)


def _buffer(name: str, what: str) -> str:
    return f"{what}_{name.replace('.', '_')}"


def dequantised(x: Codes) -> Tensor:
    """The activation as float32."""
    return symbolic("DequantizeLinear", tuple(x), dtype=torch.float32, shape=x.codes.shape, version=21)


def activation_ranges(decoder: LightDecoder, latents: Sequence[Tensor]) -> dict[str, tuple[float, float]]:
    """The range of the input (under "") and of every layer that `Int8Graph` quantises, over these latents.

    SUM: of the first upsampling with the skip added. Layers with a ReLU behind them begin at 0.
    """
    found: dict[str, tuple[float, float]] = {}

    def seen(name: str, x: Tensor) -> None:
        low, high = found.get(name, (0.0, 0.0))
        found[name] = min(low, float(x.min())), max(high, float(x.max()))

    def watch(name: str, rectified: bool) -> Callable[[nn.Module, object, Tensor], None]:
        return lambda _, given, x: seen(name, functional.relu(x) if rectified else x)

    later = {f"upsamples.{number}" for number in range(1, len(decoder.upsamples))}
    hooks = [
        module.register_forward_hook(watch(name, name == "stem" or name.endswith(".a") or name in later))
        for name, module in decoder.named_modules()
        if isinstance(module, nn.Conv2d | Residual)
    ]
    hooks.append(decoder.stages[1].register_forward_pre_hook(lambda _, given: seen(SUM, given[0])))
    for latent in latents:
        seen("", latent)
        decoder(latent[0], None)
    for hook in hooks:
        hook.remove()
    return found
