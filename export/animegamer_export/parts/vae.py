"""Writes the vae decoder's two ONNX parts, first and next, with shared weights; they output pixels.

The graph differs from the network's code: frames are a batch of 2-D images, because onnxruntime's blocked 2-D
convolutions run three times as fast as its 3-D ones. The weights are the same, and `check_outputs` compares both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from animegamer_export.onnx_io.write import Case, ExportResult, Graph, Precision, check_outputs, export_copy, write
from animegamer_rt.models.vae import (
    CACHE_FRAMES,
    CHUNKS,
    CausalConv,
    LatentNorm,
    ResidualBlock,
    Stage,
    Upsample,
    VaeDecoder,
)

WEIGHTS = "vae.weights"
CACHE_TOLERANCE = 2e-3
"""Caches hold activations of about 10 to 100; frames may differ by one of 255 levels."""

TAPS = 3
"""Frames read by a causal convolution."""

Decode = Callable[[Tensor, list[Tensor] | None], tuple[Tensor, list[Tensor]]]
"""(chunk of a latent [1, t, 16, h, w], the chunk before's caches; None at first) -> frames [T, 3, H, W], caches."""
Caches = Iterator[Tensor | None]
FrameMap = Sequence[int]
"""For each of T frames, the index of its frame in a batch of U: where time is doubled, a frame is computed once and
repeated later. None: T = U, no repeats."""


def pixels(frames: Tensor, channel_order: Tensor, flip: Tensor) -> Tensor:
    """frames [T, 3, H, W], about -1..1 -> uint8 [T, H, W, C] by truncation.

    channel_order int64 [C]: indices into R, G, B, A (A is 255). flip bool [1]: bottom row first.
    """
    colours = (((frames + 1) / 2).clamp(0, 1) * 255).to(torch.uint8)
    alpha = torch.full_like(colours[:, :1], 255)
    rows = torch.arange(frames.shape[2])
    rows = torch.where(flip, rows.flip(0), rows)
    picked = torch.cat([colours, alpha], dim=1).index_select(1, channel_order).index_select(2, rows)
    return picked.permute(0, 2, 3, 1)


def export_vae(
    decoder: VaeDecoder, folder: Path, latent_height: int, latent_width: int, precision: Precision = "fp16"
) -> ExportResult:
    """Writes vae_first.onnx, vae_next.onnx and their weights; checks both chunks in two pixel formats.

    Raises BundleError if the outputs of onnxruntime and torch differ.
    """
    decoder = export_copy(decoder, precision)
    with torch.no_grad():
        graphs = vae_graphs(VaeGraph(decoder), decoder.size.latent_channels, latent_height, latent_width)
        latent = torch.cat([graph.inputs["latent"] for graph in graphs], dim=1)
        parts = write(folder, graphs, WEIGHTS, precision)

        def decode(chunk: Tensor, caches: list[Tensor] | None) -> tuple[Tensor, list[Tensor]]:
            before = None if caches is None else [cache.transpose(0, 1)[None] for cache in caches]
            frames, kept = decoder(chunk.transpose(1, 2) / decoder.size.scale, before)
            return _to_batch(frames), list(map(_to_batch, kept))

        cases = list(clip_cases(decode, latent, [graph.name for graph in graphs]))
        return ExportResult(parts, check_outputs(folder, cases, CACHE_TOLERANCE))


def vae_graphs(graph: VaeGraph, latent_channels: int, latent_height: int, latent_width: int) -> list[Graph]:
    """Both graphs to export, with example inputs. Fake tensors give the caches' shapes without running the decoder."""
    grid = (latent_channels, latent_height, latent_width)
    order, flip = torch.tensor([0, 1, 2, 3]), torch.tensor([True])
    latents = torch.randn(1, sum(CHUNKS), *grid, generator=torch.Generator().manual_seed(0)).split(CHUNKS, dim=1)
    with FakeTensorMode(allow_non_fake_inputs=True):
        _, *shapes = graph(latents[0], order, flip)
    # Placeholders: full-size caches would take 5.2 GiB.
    caches = [torch.zeros(()).expand(cache.shape) for cache in shapes]
    names = cache_names(graph.cache_count)
    first = {"latent": latents[0], "channel_order": order, "flip": flip}
    following = {**first, "latent": latents[1], **dict(zip(names, caches, strict=True))}
    axes = {"channel_order": {0: "channels"}}
    return [
        Graph("vae_first", graph, first, ("frames", *names), axes),
        Graph("vae_next", _LastChunk(graph), following, ("frames",), axes),
    ]


def cache_names(count: int) -> list[str]:
    """The names of a part's caches, in order of use."""
    return [f"cache_{number:02d}" for number in range(count)]


def clip_cases(decode: Decode, latent: Tensor, parts: Sequence[str]) -> Iterator[tuple[str, Case]]:
    """A decoder's own frames of both chunks of a latent, as RGB and as flipped BGRA. parts: first and next."""
    caches: list[Tensor] | None = None
    for part, chunk in zip(parts, latent.split(CHUNKS, dim=1), strict=True):
        frames, kept = decode(chunk, caches)
        names = cache_names(len(kept))
        given = {} if caches is None else dict(zip(names, caches, strict=True))
        left = dict(zip(names, kept, strict=True)) if caches is None else {}
        for name, channels in (("rgb", [0, 1, 2]), ("flipped bgra", [2, 1, 0, 3])):
            order, flip = torch.tensor(channels), torch.tensor(["flipped" in name])
            inputs = {"latent": chunk, "channel_order": order, "flip": flip, **given}
            yield part, Case(name, inputs, {"frames": pixels(frames, order, flip), **left})
        caches = kept


def _to_batch(frames: Tensor) -> Tensor:
    """[1, C, T, H, W] -> [T, C, H, W]."""
    return frames[0].transpose(0, 1).contiguous()


def _blocks(blocks: nn.ModuleList) -> nn.ModuleList:
    return nn.ModuleList(_Block(cast(ResidualBlock, block)) for block in blocks)


class VaeGraph(nn.Module):
    """The decoder with frames as the batch, from the denoiser's latent to pixels."""

    def __init__(self, decoder: VaeDecoder) -> None:
        super().__init__()
        self.scale = decoder.size.scale
        self.conv_in = _Conv(decoder.conv_in)
        stages = [cast(Stage, stage) for stage in decoder.stages]
        self.middle = _blocks(decoder.middle)
        self.stages = nn.ModuleList(_blocks(stage.blocks) for stage in stages)
        self.upsamples = nn.ModuleList(
            nn.Identity() if stage.upsample is None else _Upsample(stage.upsample) for stage in stages
        )
        self.norm_out, self.conv_out = _Norm(decoder.norm_out), _Conv(decoder.conv_out)
        self.cache_count = decoder.cache_count

    def forward(self, latent: Tensor, channel_order: Tensor, flip: Tensor, *caches: Tensor) -> tuple[Tensor, ...]:
        """latent [1, t, 16, h, w], the previous chunk's caches (none at first) -> frames and new caches."""
        latent = latent[0] / self.scale
        past: Caches = iter(caches if caches else [None] * self.cache_count)
        kept: list[Tensor] = []
        x = self.conv_in(latent, past, kept)
        for block in self.middle:
            x = block(x, latent, past, kept)
        frame_map: FrameMap | None = None
        for blocks, upsample in zip(self.stages, self.upsamples, strict=True):
            assert isinstance(blocks, nn.ModuleList)
            for block in blocks:
                x, frame_map = block(x, latent, past, kept, frame_map), None
            if isinstance(upsample, _Upsample):
                x, latent, frame_map = upsample(x), _double_columns(latent), upsample.frame_map(len(x))
        x = self.conv_out(self.norm_out(x, latent), past, kept)
        return pixels(x, channel_order, flip), *kept


class _LastChunk(nn.Module):
    """The graph without its cache outputs."""

    def __init__(self, graph: VaeGraph) -> None:
        super().__init__()
        self.decoder = graph

    def forward(self, latent: Tensor, channel_order: Tensor, flip: Tensor, *caches: Tensor) -> Tensor:
        frames: Tensor = self.decoder(latent, channel_order, flip, *caches)[0]
        return frames


class _Conv(nn.Module):
    """A causal convolution as three 2-D ones: for the frame itself, the one before, and the one two before.

    With fewer output than input channels, one convolution computes all three for each frame and the results are added
    with their delays: full blocks of outputs are faster (16 to 3 channels at 96 x 144: 37 -> 16 ms of one core).
    """

    def __init__(self, conv: CausalConv) -> None:
        super().__init__()
        self.channels, self.stacked = conv.out_channels, conv.out_channels < conv.in_channels
        taps = conv.weight.detach().unbind(2)
        weights = [torch.cat(taps)] if self.stacked else [tap.contiguous() for tap in taps]
        assert conv.bias is not None
        bias = conv.bias.detach()
        self.weights = nn.ParameterList(nn.Parameter(weight) for weight in weights)
        self.bias = nn.Parameter(torch.cat([bias, 0 * bias, 0 * bias]) if self.stacked else bias.clone())

    def forward(self, x: Tensor, past: Caches, kept: list[Tensor], frame_map: FrameMap | None = None) -> Tensor:
        """x [U, C, H, W], frame_map of T frames -> [T, C', H, W].

        Takes its cache [2, C, H, W] from `past` and appends the new one to `kept`.
        """
        cache = next(past)
        if self.stacked or frame_map is not None:
            return self.added_after(x, cache, kept, frame_map)
        padded = torch.cat([x[:1], x[:1], x] if cache is None else [cache, x])
        kept.append(padded[-CACHE_FRAMES:])
        out = functional.conv2d(x, self.weights[2], self.bias, padding=1)
        for delay in (0, 1):
            out = out + functional.conv2d(padded[delay : delay + len(x)], self.weights[delay], padding=1)
        return out

    def added_after(self, x: Tensor, cache: Tensor | None, kept: list[Tensor], frame_map: FrameMap | None) -> Tensor:
        """The same, with each tap computed once per frame, then selected and added."""
        # If frames are doubled in time, both cached frames are equal.
        before = 0 if cache is None else CACHE_FRAMES if frame_map is None else 1
        if cache is not None:
            x = torch.cat([cache[-before:], x])
        following = range(len(x) - before) if frame_map is None else frame_map
        padded = [0, max(0, before - 1), *(before + frame for frame in following)]
        kept.append(_select_frames(x, padded[-CACHE_FRAMES:]))
        reads = [padded[tap : tap + len(following)] for tap in range(TAPS)]
        if self.stacked:
            each = functional.conv2d(x, self.weights[0], self.bias, padding=1).reshape(-1, self.channels, *x.shape[2:])
            results = [_select_frames(each, [TAPS * frame + tap for frame in read]) for tap, read in enumerate(reads)]
        else:
            each_tap = zip(self.weights, (self.bias, None, None), reads, strict=True)
            results = [_select_frames(functional.conv2d(x, tap, bias, padding=1), read) for tap, bias, read in each_tap]
        return results[0] + results[1] + results[2]


def _select_frames(x: Tensor, frames: FrameMap) -> Tensor:
    """The frames of x at these indices."""
    if list(frames) == list(range(len(x))):
        return x
    return x.index_select(0, torch.tensor(list(frames)))


class _Norm(nn.Module):
    """Group norm, scale and shift from the latent, and SiLU, with the factors multiplied on the latent's small grid.

    The latent is as wide as x, so its factors apply to whole rows of x without a resize.
    """

    def __init__(self, norm: LatentNorm) -> None:
        super().__init__()
        self.groups, self.epsilon = norm.norm.num_groups, norm.norm.eps
        self.weight, self.bias = norm.norm.weight, norm.norm.bias
        self.scale, self.shift = _as_conv2d(norm.scale), _as_conv2d(norm.shift)

    def forward(self, x: Tensor, latent: Tensor, frame_map: FrameMap | None = None) -> Tensor:
        """x [U, C, H, W], latent [t, 16, h, W] -> silu(norm(x) * scale + shift)."""
        frames, channels, height, width = x.shape
        grouped = x.reshape(frames, self.groups, -1)
        mean = self.average(grouped, frame_map)
        variance = self.average(grouped * grouped, frame_map) - mean * mean
        share = (1, self.groups, channels // self.groups)
        factor = torch.rsqrt(variance + self.epsilon) * self.weight.reshape(share)
        offset = (self.bias.reshape(share) - mean * factor).reshape(1, channels, 1, 1)
        scale = self.scale(latent)
        # norm(x) * scale + shift = x * (factor * scale) + (offset * scale + shift): one large product and sum instead
        # of two.
        sources, rows = _repeat_map(len(latent), frames), latent.shape[2]
        large = _select_frames(factor.reshape(1, channels, 1, 1) * scale, sources).unsqueeze(3)
        added = _select_frames(offset * scale + self.shift(latent), sources).unsqueeze(3)
        tall = x.reshape(frames, channels, rows, height // rows, width)
        return functional.silu(tall * large + added).reshape(x.shape)

    def average(self, x: Tensor, frame_map: FrameMap | None) -> Tensor:
        """Mean of [U, G, n] over all frames after repeats: [1, G, 1]."""
        if frame_map is None:
            return x.mean((0, 2), keepdim=True)
        return _select_frames(x.mean(2, keepdim=True), frame_map).mean(0, keepdim=True)


class _Block(nn.Module):
    def __init__(self, block: ResidualBlock) -> None:
        super().__init__()
        self.norm_in, self.conv_in = _Norm(block.norm_in), _Conv(block.conv_in)
        self.norm_out, self.conv_out = _Norm(block.norm_out), _Conv(block.conv_out)
        self.shortcut = _as_conv2d(block.shortcut) if isinstance(block.shortcut, nn.Conv3d) else nn.Identity()

    def forward(
        self, x: Tensor, latent: Tensor, past: Caches, kept: list[Tensor], frame_map: FrameMap | None = None
    ) -> Tensor:
        """x [U, C, H, W], latent [t, 16, h, W] -> [T, C', H, W]."""
        h = self.conv_in(self.norm_in(x, latent, frame_map), past, kept, frame_map)
        h = self.conv_out(self.norm_out(h, latent), past, kept)
        shortcut: Tensor = self.shortcut(x)
        return (shortcut if frame_map is None else _select_frames(shortcut, frame_map)) + cast(Tensor, h)


class _Upsample(nn.Module):
    """Doubles height and width; frames that are repeated in time are convolved once and repeated by their readers."""

    def __init__(self, upsample: Upsample) -> None:
        super().__init__()
        self.doubles_time = upsample.doubles_time
        self.conv = _as_conv2d(upsample.conv)

    def forward(self, x: Tensor) -> Tensor:
        """[U, C, H, W] -> [U, C, 2H, 2W]."""
        # onnxruntime's resize is fast for doubling two of four axes; a factor of 8, or five axes, is far slower.
        out: Tensor = self.conv(functional.interpolate(x, scale_factor=2.0, mode="nearest"))
        return out

    def frame_map(self, frames: int) -> FrameMap | None:
        """The FrameMap after this layer; None if it does not double time."""
        if not self.doubles_time or frames == 1:
            return None
        return _repeat_map(frames, 2 * frames - frames % 2)


def _double_columns(latent: Tensor) -> Tensor:
    """[t, 16, h, W] -> [t, 16, h, 2W]: each column twice."""
    return latent.unsqueeze(4).expand(-1, -1, -1, -1, 2).flatten(3)


def _as_conv2d(conv: nn.Conv3d) -> nn.Conv2d:
    """A 3-D convolution of depth 1 as a 2-D one with padding that keeps the size."""
    depth, *kernel = conv.kernel_size
    assert depth == 1
    flat = nn.Conv2d(conv.in_channels, conv.out_channels, (kernel[0], kernel[1]), padding=kernel[0] // 2)
    flat.weight, flat.bias = nn.Parameter(conv.weight.detach()[:, :, 0].contiguous()), conv.bias
    return flat


def _repeat_map(have: int, frames: int) -> list[int]:
    """For each of `frames` frames, the index of the frame it repeats among `have`."""
    if frames == 1 or frames % 2 == 0:
        return [frame * have // frames for frame in range(frames)]
    return [0, *(1 + frame * (have - 1) // (frames - 1) for frame in range(frames - 1))]
