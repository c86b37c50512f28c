"""The vae decoder for inference: channels last throughout, and norm factors stay at the latent's resolution.

Weights and results are those of `models.vae.VaeDecoder`, up to the order of floating-point operations. With our
kernels, biases of convolutions are deferred: PyTorch would add each in a separate pass, while the next norm can add
them to its input.

Shape letters: T video frames of H x W with C channels; t latent frames of h x w. Source: MODEL.md section 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from animegamer_rt.models.vae import CACHE_FRAMES, CausalConv, LatentNorm, ResidualBlock, Stage, Upsample, VaeDecoder

from .kernels import Kernels

StoreCache = Callable[[Tensor], None]
"""Receives each cache [2, H, W, C] once it is known. It must copy: the cache is a view of a whole activation."""
Bias = Tensor | None
"""A deferred bias f32 [C], to be added by the reader of the activation; None: none is deferred."""
Slices = list[Tensor]
"""An activation as consecutive slices of frames, [T_i, H, W, C] each; usually a single one."""
Write = Callable[[Tensor, int, Tensor], object]
"""(slice, number of its first frame, out): writes the normalised slice into `out`, which has its shape."""


def decode(
    network: VaeDecoder,
    latent: Tensor,
    caches: list[Tensor] | None,
    store: StoreCache,
    kernels: Kernels | None = None,
    frames_at_once: int | None = None,
) -> Tensor:
    """Decodes one chunk: latent [t, h, w, 16], divided by the scale -> frames [T, H, W, 3] in about -1..1.

    caches: those of the previous chunk, [2, H, W, C] each, or None for the first chunk. store: receives this chunk's.
    kernels: fuse a norm, its activation and the biases. frames_at_once: 2 or more; a stage's input is split into slices
    of this many frames, for less memory, with the same results up to the order of sums.
    """
    return _Chunk(network, latent, caches, store, kernels, frames_at_once).frames()


class _Chunk:
    """One chunk on its way through the decoder. The caches are a cursor: each convolution takes the next one.

    Activations are lists of slices that a layer empties as it reads them: a slice is freed before the next is made.
    """

    def __init__(
        self,
        network: VaeDecoder,
        latent: Tensor,
        caches: list[Tensor] | None,
        store: StoreCache,
        kernels: Kernels | None,
        frames_at_once: int | None,
    ) -> None:
        self.network, self.latent, self.store, self.kernels = network, latent, store, kernels
        self.past: Iterator[Tensor | None] = iter(caches if caches is not None else [None] * network.cache_count)
        self.frames_at_once, self.deferred = frames_at_once, kernels is not None and frames_at_once is None

    def frames(self) -> Tensor:
        """All layers, [T, H, W, 3]."""
        network = self.network
        x, bias = list(self.convolved(network.conv_in, [self.latent])), self.bias_of(network.conv_in)
        for block in network.middle:
            x, bias = self.residual(cast(ResidualBlock, block), x, bias)
        for stage in (cast(Stage, stage) for stage in network.stages):
            for block in stage.blocks:
                x, bias = self.residual(cast(ResidualBlock, block), x, bias)
            if stage.upsample is not None:
                x = _upsample(stage.upsample, x.pop(), self.frames_at_once, bias)
                bias = self.bias_of(stage.upsample.conv)
        (frames,) = self.convolved(network.conv_out, x, network.norm_out, bias)
        return frames

    def residual(self, block: ResidualBlock, x: Slices, bias: Bias) -> tuple[Slices, Bias]:
        """The block's output and its deferred bias, from those of its input."""
        kept: Slices = []
        shortcut = block.shortcut

        def keep_shortcut(part: Tensor) -> None:
            same = isinstance(shortcut, nn.Identity)
            kept.append(part if same else pointwise(cast(nn.Conv3d, shortcut), part, not self.deferred))

        h = list(self.convolved(block.conv_in, x, block.norm_in, bias, keep_shortcut))
        outputs = self.convolved(block.conv_out, h, block.norm_out, self.bias_of(block.conv_in))
        h = [out.add_(part) for out, part in zip(outputs, kept, strict=True)]
        if bias is not None:
            own = self.bias_of(block.conv_out)
            assert own is not None
            bias = own + (bias if isinstance(shortcut, nn.Identity) else _through(shortcut, bias))
        return [torch.cat(h)] if len(h) > 1 else h, bias

    def convolved(
        self,
        layer: CausalConv,
        x: Slices,
        norm: LatentNorm | None = None,
        bias: Bias = None,
        seen: Callable[[Tensor], None] | None = None,
    ) -> Iterator[Tensor]:
        """Convolves slice by slice. The norm is written after the slice's two past frames, where the convolution reads.

        bias: of x, not added yet; the layer's own is omitted if it is deferred. Each slice is taken out of x, passed to
        `seen`, and freed before the convolution allocates its output.
        """
        write = copied if norm is None else self.normed(norm, x, bias)
        before, first = next(self.past), 0
        padded = x[0].new_empty((CACHE_FRAMES + len(x[0]), *x[0].shape[1:]))
        while x:
            part = x.pop(0)
            read = padded[: CACHE_FRAMES + len(part)]
            past_frames, fresh = read[:CACHE_FRAMES], read[CACHE_FRAMES:]
            if before is not None:
                # From the previous slice, or from the previous chunk, whose cache may be in host memory.
                past_frames.copy_(before, non_blocking=True)
            write(part, first, fresh)
            if before is None:
                past_frames.copy_(fresh[:1].expand_as(past_frames))
            if seen is not None:
                seen(part)
            before, first = read[-CACHE_FRAMES:], first + len(part)
            del part
            yield convolve(read, layer, with_bias=not self.deferred or layer is self.network.conv_out)
        assert before is not None
        self.store(before)

    def normed(self, norm: LatentNorm, x: Slices, bias: Bias) -> Write:
        """Computes the statistics of all slices now; the result normalises one slice at a time."""
        kernels, latent = self.kernels, self.latent
        if kernels is not None and len(x) == 1:
            return lambda part, first, out: _by_kernel(kernels, norm, part, latent, out, bias)
        # Several slices use plain operators: our kernel takes its statistics from the tensor that it normalises.
        frames, (large, added) = sum(map(len, x)), _factors(norm, x, latent)

        def write(part: Tensor, first: int, out: Tensor) -> None:
            its = slice(first, first + len(part))
            _scaled_silu(part, repeated(large, frames)[its], repeated(added, frames)[its], out)

        return write

    def bias_of(self, layer: nn.Conv3d) -> Bias:
        """A convolution's bias, f32 [C], if it is deferred."""
        return layer.bias.float() if self.deferred and layer.bias is not None else None


def cache_shapes(network: VaeDecoder, height: int, width: int) -> list[tuple[int, ...]]:
    """Shapes [2, H, W, C] of the caches that a chunk stores, in order of use, for a latent of this height and width."""

    def of(part: nn.Module) -> list[tuple[int, ...]]:
        layers = (layer for layer in part.modules() if isinstance(layer, CausalConv))
        return [(CACHE_FRAMES, height, width, layer.in_channels) for layer in layers]

    shapes = of(network.conv_in) + of(network.middle)
    for stage in (cast(Stage, stage) for stage in network.stages):
        shapes += of(stage)
        if stage.upsample is not None:
            height, width = 2 * height, 2 * width
    return shapes + of(network.conv_out)


def peak_channels(network: VaeDecoder, video_frames: int, frames_at_once: int | None) -> int:
    """The largest sum of channels of video-sized frames that `decode` holds at once, besides the caches.

    It holds a convolution's input, its padded copy and its output. Multiplied by height, width and bytes per number
    this is its peak memory, reached at the start of the last stage, or after it if that runs in slices.
    """
    first = cast(ResidualBlock, cast(Stage, network.stages[-1]).blocks[0]).conv_in
    wide, narrow = first.in_channels, first.out_channels
    if frames_at_once is None:
        return video_frames * wide + (CACHE_FRAMES + video_frames) * wide + video_frames * narrow
    in_parts = video_frames * wide + (CACHE_FRAMES + frames_at_once) * wide + frames_at_once * narrow
    return max(in_parts, (3 * video_frames + CACHE_FRAMES) * narrow)


def copied(part: Tensor, first: int, out: Tensor) -> None:
    """A `Write` without a norm."""
    out.copy_(part)


def _factors(layer: LatentNorm, x: Slices, latent: Tensor) -> tuple[Tensor, Tensor]:
    """(a, b) with norm(x) * scale + shift = x * a + b, each [t, h, w, C] on the latent's grid; sums are float32."""
    norm, channels, dtype = layer.norm, x[0].shape[3], x[0].dtype
    grouped = [part.view(-1, norm.num_groups, channels // norm.num_groups) for part in x]
    width = channels // norm.num_groups
    count = sum(part.shape[0] for part in grouped) * width
    sums = [part.sum((0, 2), dtype=torch.float32) for part in grouped]
    squares = [torch.linalg.vector_norm(part, dim=(0, 2), dtype=torch.float32).square() for part in grouped]
    mean, square = (reduce(torch.add, of_parts) / count for of_parts in (sums, squares))
    spread = torch.rsqrt(square - mean * mean + norm.eps).repeat_interleave(width)
    assert norm.weight is not None and norm.bias is not None
    factor = spread * norm.weight.float()
    offset = norm.bias.float() - mean.repeat_interleave(width) * factor
    scale, shift = pointwise(layer.scale, latent).float(), pointwise(layer.shift, latent).float()
    return (factor * scale).to(dtype), (offset * scale + shift).to(dtype)


def _scaled_silu(x: Tensor, large: Tensor, added: Tensor, out: Tensor) -> None:
    """silu(x * large + added) into `out`: x [T, H, W, C], large and added [T, h, w, C].

    Each factor applies to a square of pixels through views, so no tensor of x's size is made for them.
    """
    (frames, height, width, channels), (_, rows, columns, _) = x.shape, large.shape
    small = (frames, rows, 1, columns, 1, channels)
    squares = x.view(frames, rows, height // rows, columns, width // columns, channels)
    torch.addcmul(added.view(small), squares, large.view(small), out=out.view(squares.shape))
    functional.silu(out, inplace=True)


def _by_kernel(
    kernels: Kernels, layer: LatentNorm, x: Tensor, latent: Tensor, out: Tensor, bias: Bias = None
) -> Tensor:
    """silu(group norm(x + bias) * scale + shift) into `out`, in one kernel; scale and shift are of the latent."""
    scale, shift = pointwise(layer.scale, latent), pointwise(layer.shift, latent)
    return kernels.spatial_norm(x, scale, shift, layer.norm, out, bias)


def _through(shortcut: nn.Conv3d, bias: Tensor) -> Tensor:
    """A deferred bias f32 [C] after a pointwise convolution, including the convolution's own: f32 [C']."""
    assert shortcut.bias is not None
    return functional.linear(bias, shortcut.weight.flatten(1).float(), shortcut.bias.float())


def repeated(x: Tensor, frames: int) -> Tensor:
    """x [t, ...] resized in time to `frames` by repetition; an odd number is a single first frame, then pairs."""
    if frames == len(x):
        return x
    alone = frames % 2
    # Views and one copy: an index tensor would come from the host, which a graph cannot hold.
    rest = x[alone:, None].expand(-1, (frames - alone) // (len(x) - alone), *x.shape[1:]).flatten(0, 1)
    return torch.cat([x[:1], rest]) if alone else rest


def _upsample(layer: Upsample, x: Tensor, frames_at_once: int | None, bias: Bias) -> Slices:
    """x + bias, enlarged and convolved. If there is a bias to add, the convolution's own is omitted."""
    frames, height, width, channels = x.shape
    if layer.doubles_time:
        x = repeated(x, 2 * frames - frames % 2)

    def upsampled(part: Tensor) -> Tensor:
        squares = part[:, :, None, :, None].expand(-1, -1, 2, -1, 2, -1)
        large, own = part.new_empty((len(part), 2 * height, 2 * width, channels)), layer.conv.bias
        if bias is None:
            large.view(squares.shape).copy_(squares)
        else:
            # In the same pass: at the picture's edge the convolution reads zeros, which get no bias.
            torch.add(squares, bias, out=large.view(squares.shape))
            own = None
        out = functional.conv2d(large.permute(0, 3, 1, 2), layer.conv.weight[:, :, 0], own, padding=1)
        return out.permute(0, 2, 3, 1).contiguous()  # as in `convolve`

    return [upsampled(part) for part in x.split(frames_at_once or len(x))]


def put_channels_last(network: nn.Module) -> None:
    """Changes the layout of the 3D convolutions' weights to what `convolve` needs, in place.

    Otherwise PyTorch would not recognise either operand as channels last, because a batch of one that is a view of
    frames does not look so, and would convert the input in every call.
    """
    for weight in network.parameters():
        if weight.ndim == 5:
            weight.data = weight.data.contiguous(memory_format=torch.channels_last_3d)


def convolve(padded: Tensor, layer: CausalConv, with_bias: bool = True) -> Tensor:
    """[T + 2, H, W, C] -> [T, H, W, C']; the permuted view is what PyTorch calls channels_last_3d."""
    bias = layer.bias if with_bias else None
    out = functional.conv3d(padded.permute(3, 0, 1, 2)[None], layer.weight, bias, padding=(0, 1, 1))
    # Libraries keep the memory layout of their input; where one does not, this copies.
    return out[0].permute(1, 2, 3, 0).contiguous()


def pointwise(layer: nn.Conv3d, x: Tensor, with_bias: bool = True) -> Tensor:
    """A 1 x 1 x 1 convolution as a matrix product over the channels: [..., C] -> [..., C']."""
    return functional.linear(x, layer.weight.flatten(1), layer.bias if with_bias else None)
