"""The vae decoder's network as it runs here: every tensor lies channels last, norms make no picture-sized factors.

The weights are those of `models.vae.VaeDecoder`, and so are the numbers, but for the order of operations. It does not
know pixels. T frames, C channels, H x W; t frames, h x w of the chunk's latent. Source: MODEL.md section 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...models.vae import CACHE_FRAMES, CausalConv, LatentNorm, ResidualBlock, Stage, Upsample, VaeDecoder
from .kernels import Kernels

Past = Iterator[Tensor | None]
Keep = Callable[[Tensor], None]
"""Takes a cache [2, H, W, C] as soon as it is known; it must copy, or it holds a whole activation alive."""


def decode(
    network: VaeDecoder,
    latent: Tensor,
    caches: list[Tensor] | None,
    keep: Keep,
    kernels: Kernels | None = None,
) -> Tensor:
    """One chunk: latent [t, h, w, 16] (divided by the scale), the caches of the chunk before -> frames [T, H, W, 3].

    `kernels`: norms and their activations are one kernel each.
    """
    normed = norm_silu if kernels is None else partial(_by_kernel, kernels)
    past: Past = iter(caches if caches is not None else [None] * network.cache_count)

    def behind_the_past(x: Tensor, norm: LatentNorm | None = None) -> Tensor:
        """What a convolution reads, [T + 2, H, W, C]. A norm writes it there, so that its result is nowhere twice."""
        before = next(past)
        padded = x.new_empty((CACHE_FRAMES + len(x), *x.shape[1:]))
        fresh = padded[CACHE_FRAMES:]
        if norm is None:
            fresh.copy_(x)
        else:
            normed(norm, x, latent, fresh)
        padded[:CACHE_FRAMES] = fresh[:1] if before is None else before
        keep(padded[-CACHE_FRAMES:])
        return padded

    def residual(block: ResidualBlock, x: Tensor) -> Tensor:
        h = _convolve(behind_the_past(x, block.norm_in), block.conv_in)
        h = behind_the_past(h, block.norm_out)  # the norm's input is gone before the convolution's output is made
        h = _convolve(h, block.conv_out)
        shortcut = block.shortcut
        return h.add_(x if isinstance(shortcut, nn.Identity) else pointwise(shortcut, x))

    x = _convolve(behind_the_past(latent), network.conv_in)
    for block in network.middle:
        x = residual(cast(ResidualBlock, block), x)
    for stage in (cast(Stage, stage) for stage in network.stages):
        for block in stage.blocks:
            x = residual(cast(ResidualBlock, block), x)
        if stage.upsample is not None:
            x = _upsample(stage.upsample, x)
    x = behind_the_past(x, network.norm_out)
    return _convolve(x, network.conv_out)


def norm_silu(layer: LatentNorm, x: Tensor, latent: Tensor, out: Tensor | None = None) -> Tensor:
    """silu(group norm(x) * scale + shift), with scale and shift projected from the latent: [T, H, W, C], into `out`.

    norm(x) * scale + shift = x * a + b with a and b on the latent's small grid; each of their places serves a square
    of x, seen as an axis of its own, so neither is ever as large as x. The sums are float32.
    """
    frames, height, width, channels = x.shape
    norm, (_, rows, columns, _) = layer.norm, latent.shape
    grouped = x.view(-1, norm.num_groups, channels // norm.num_groups)
    count = grouped.shape[0] * grouped.shape[2]
    mean = grouped.sum((0, 2), dtype=torch.float32) / count
    square = torch.linalg.vector_norm(grouped, dim=(0, 2), dtype=torch.float32).square() / count
    spread = torch.rsqrt(square - mean * mean + norm.eps).repeat_interleave(grouped.shape[2])
    assert norm.weight is not None and norm.bias is not None
    factor = spread * norm.weight.float()
    offset = norm.bias.float() - mean.repeat_interleave(grouped.shape[2]) * factor
    scale, shift = pointwise(layer.scale, latent).float(), pointwise(layer.shift, latent).float()
    small = (frames, rows, 1, columns, 1, channels)
    large = repeated((factor * scale).to(x.dtype), frames).view(small)
    added = repeated((offset * scale + shift).to(x.dtype), frames).view(small)
    squares = x.view(frames, rows, height // rows, columns, width // columns, channels)
    out = torch.empty_like(x) if out is None else out
    torch.addcmul(added, squares, large, out=out.view(squares.shape))
    return functional.silu(out, inplace=True)


def _by_kernel(kernels: Kernels, layer: LatentNorm, x: Tensor, latent: Tensor, out: Tensor) -> Tensor:
    """As norm_silu."""
    return kernels.spatial_norm(x, pointwise(layer.scale, latent), pointwise(layer.shift, latent), layer.norm, out)


def repeated(x: Tensor, frames: int) -> Tensor:
    """x [t, ...] nearest-resized in time to so many frames; the first of an odd number stands alone."""
    if frames == len(x):
        return x
    alone = frames % 2
    # Views and one copy: an index would come from the host, which a graph cannot hold.
    rest = x[alone:, None].expand(-1, (frames - alone) // (len(x) - alone), *x.shape[1:]).flatten(0, 1)
    return torch.cat([x[:1], rest]) if alone else rest


def _upsample(layer: Upsample, x: Tensor) -> Tensor:
    frames, height, width, channels = x.shape
    if layer.doubles_time and frames > 1:
        x = repeated(x, 2 * frames - frames % 2)
    x = x[:, :, None, :, None].expand(-1, -1, 2, -1, 2, -1).reshape(len(x), 2 * height, 2 * width, channels)
    out = functional.conv2d(x.permute(0, 3, 1, 2), layer.conv.weight[:, :, 0], layer.conv.bias, padding=1)
    return out.permute(0, 2, 3, 1).contiguous()  # as in `_convolve`


def _convolve(padded: Tensor, layer: CausalConv) -> Tensor:
    """[T + 2, H, W, C] -> [T, H, W, C']; the permuted view is what PyTorch calls channels_last_3d."""
    out = functional.conv3d(padded.permute(3, 0, 1, 2)[None], layer.weight, layer.bias, padding=(0, 1, 1))
    # Libraries keep the layout of what they were given; where one does not, this copies.
    return out[0].permute(1, 2, 3, 0).contiguous()


def pointwise(layer: nn.Conv3d, x: Tensor) -> Tensor:
    """A 1 x 1 x 1 convolution, which is a product over the channels."""
    return functional.linear(x, layer.weight.flatten(1), layer.bias)
