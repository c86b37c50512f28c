"""The vae decoder: decodes latent frames to video frames in chunks, with causal 3D convolutions.

Source: MODEL.md section 6 (VAE decoder).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

# Latent frames of a turn's two chunks: 3 give 9 video frames, 2 give 8.
CHUNKS = (3, 2)
# A 3x3x3 causal convolution reads two past frames; each cache holds them.
CACHE_FRAMES = 2
NORM_EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class VaeSize:
    """Sizes of the decoder; the defaults are the full-size model.

    multipliers: of `channels`, from the stage at full resolution to the deepest; the two deepest stages double time.
    res_blocks: one less than the blocks of a stage. scale: the denoiser's latent is divided by it before decoding.
    """

    channels: int = 128
    multipliers: tuple[int, ...] = (1, 2, 2, 4)
    res_blocks: int = 3
    latent_channels: int = 16
    norm_groups: int = 32
    scale: float = 1.15258426

    @property
    def widths(self) -> tuple[int, ...]:
        """Channels of each stage, from full resolution to the deepest."""
        return tuple(self.channels * multiplier for multiplier in self.multipliers)

    @property
    def upscale(self) -> int:
        """Video pixels per latent pixel, along height and along width."""
        return int(2 ** (len(self.multipliers) - 1))


def first_frame_single(x: Tensor) -> bool:
    """Whether x [B, C, T, H, W] begins with a single frame: an odd number of frames is one frame, then pairs."""
    return x.shape[2] > 1 and x.shape[2] % 2 == 1


def resize_like(source: Tensor, frames: int, height: int, width: int, first_single: bool) -> Tensor:
    """Nearest resize of source [B, C, t, h, w] to [B, C, frames, height, width].

    first_single: the first frame stays one frame, and only the others are resized in time.
    """
    if not first_single:
        return functional.interpolate(source, size=(frames, height, width), mode="nearest")
    first = functional.interpolate(source[:, :, :1], size=(1, height, width), mode="nearest")
    rest = functional.interpolate(source[:, :, 1:], size=(frames - 1, height, width), mode="nearest")
    return torch.cat([first, rest], dim=2)


class CausalConv(nn.Conv3d):
    """A 3x3x3 convolution over past frames only: two cached frames come first, or the first frame twice."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, kernel_size=3, padding=(0, 1, 1))

    def step(self, x: Tensor, cache: Tensor | None) -> tuple[Tensor, Tensor]:
        """Convolves a chunk x [B, C, T, H, W]; returns the result and the cache [B, C, 2, H, W] for the next chunk."""
        past = x[:, :, :1].expand(-1, -1, CACHE_FRAMES, -1, -1) if cache is None else cache.to(x.dtype)
        padded = torch.cat([past, x], dim=2)
        return self(padded), padded[:, :, -CACHE_FRAMES:]


class LatentNorm(nn.Module):
    """Group norm; scale and shift of each voxel are projections of the chunk's latent."""

    def __init__(self, channels: int, size: VaeSize) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(size.norm_groups, channels, eps=NORM_EPSILON)
        self.scale = nn.Conv3d(size.latent_channels, channels, kernel_size=1)
        self.shift = nn.Conv3d(size.latent_channels, channels, kernel_size=1)

    def forward(self, x: Tensor, latent: Tensor) -> Tensor:
        """x [B, C, T, H, W], latent [B, 16, t, h, w] -> [B, C, T, H, W]."""
        # A pointwise convolution and a nearest resize commute, and projecting first costs up to 256 times less.
        frames, height, width, first_single = x.shape[2], x.shape[3], x.shape[4], first_frame_single(x)
        scale = resize_like(self.scale(latent), frames, height, width, first_single)
        shift = resize_like(self.shift(latent), frames, height, width, first_single)
        out: Tensor = self.norm(x) * scale + shift
        return out


class ResidualBlock(nn.Module):
    """Norm, SiLU and causal convolution, twice, plus a shortcut: pointwise where the width changes."""

    def __init__(self, in_channels: int, out_channels: int, size: VaeSize) -> None:
        super().__init__()
        self.norm_in = LatentNorm(in_channels, size)
        self.conv_in = CausalConv(in_channels, out_channels)
        self.norm_out = LatentNorm(out_channels, size)
        self.conv_out = CausalConv(out_channels, out_channels)
        same = in_channels == out_channels
        self.shortcut = nn.Identity() if same else nn.Conv3d(in_channels, out_channels, kernel_size=1)

    def forward(self, x: Tensor, latent: Tensor, past: Iterator[Tensor | None], new_caches: list[Tensor]) -> Tensor:
        """Takes its two caches from `past` and appends the two new ones to `new_caches`."""
        h, cache = self.conv_in.step(functional.silu(self.norm_in(x, latent)), next(past))
        new_caches.append(cache)
        h, cache = self.conv_out.step(functional.silu(self.norm_out(h, latent)), next(past))
        new_caches.append(cache)
        shortcut: Tensor = self.shortcut(x)
        return shortcut + h


class Upsample(nn.Module):
    """Nearest doubling of space, and of time if `doubles_time` (except a single first frame); then a 2D convolution."""

    def __init__(self, channels: int, doubles_time: bool) -> None:
        super().__init__()
        self.doubles_time = doubles_time
        # Five dimensions, so that the whole decoder can be converted to channels_last_3d.
        self.conv = nn.Conv3d(channels, channels, kernel_size=(1, 3, 3))

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, T, H, W] -> [B, C, T or 2T or 2T-1, 2H, 2W]."""
        batch, channels, frames, height, width = x.shape
        first_single = self.doubles_time and first_frame_single(x)
        grows = self.doubles_time and frames > 1
        frames = 2 * frames - int(first_single) if grows else frames
        x = resize_like(x, frames, 2 * height, 2 * width, first_single)
        flat = x.transpose(1, 2).reshape(batch * frames, channels, 2 * height, 2 * width)
        # A 2D convolution over frames: libraries have faster kernels for it than for depth 1 in 3D.
        out = functional.conv2d(flat, self.conv.weight[:, :, 0], self.conv.bias, padding=1)
        return out.reshape(batch, frames, channels, 2 * height, 2 * width).transpose(1, 2)


class Stage(nn.Module):
    """The residual blocks of one resolution, and the upsampling to the next one, absent at full resolution."""

    def __init__(self, in_channels: int, out_channels: int, upsample: Upsample | None, size: VaeSize) -> None:
        super().__init__()
        widths = [in_channels] + [out_channels] * (size.res_blocks + 1)
        self.blocks = nn.ModuleList(ResidualBlock(a, b, size) for a, b in pairwise(widths))
        self.upsample = upsample

    def forward(self, x: Tensor, latent: Tensor, past: Iterator[Tensor | None], new_caches: list[Tensor]) -> Tensor:
        """x [B, C, T, H, W] -> frames of the next resolution."""
        for block in self.blocks:
            x = block(x, latent, past, new_caches)
        return x if self.upsample is None else self.upsample(x)


class VaeDecoder(nn.Module):
    """Decodes latent chunks. Group statistics are per chunk, so two chunks differ from one (MODEL.md section 6)."""

    def __init__(self, size: VaeSize) -> None:
        super().__init__()
        self.size = size
        widths = size.widths
        self.conv_in = CausalConv(size.latent_channels, widths[-1])
        self.middle = nn.ModuleList(ResidualBlock(widths[-1], widths[-1], size) for _ in range(2))
        stages = []
        incoming = widths[-1]
        for level in reversed(range(len(widths))):
            # The deepest two steps double time and space: 5 latent frames become 17.
            upsample = Upsample(widths[level], doubles_time=level >= len(widths) - 2) if level > 0 else None
            stages.append(Stage(incoming, widths[level], upsample, size))
            incoming = widths[level]
        self.stages = nn.ModuleList(stages)
        self.norm_out = LatentNorm(incoming, size)
        self.conv_out = CausalConv(incoming, 3)

    @property
    def cache_count(self) -> int:
        """How many caches a chunk returns: one for each causal convolution, in order of use."""
        return sum(isinstance(module, CausalConv) for module in self.modules())

    def forward(self, latent: Tensor, caches: list[Tensor] | None = None) -> tuple[Tensor, list[Tensor]]:
        """Decodes one chunk.

        latent [B, 16, t, h, w], already divided by the scale; caches of the chunk before (each [B, C, 2, H, W]), or
        None at the first. Returns frames [B, 3, T, H, W] about -1..1 (T = 4t - 3 for odd t, 4t for even; 1 for 1)
        and the caches for the next chunk. Source: MODEL.md section 6.
        """
        past: Iterator[Tensor | None] = iter(caches if caches is not None else [None] * self.cache_count)
        new_caches: list[Tensor] = []
        x, cache = self.conv_in.step(latent, next(past))
        new_caches.append(cache)
        for block in self.middle:
            x = block(x, latent, past, new_caches)
        for stage in self.stages:
            x = stage(x, latent, past, new_caches)
        x, cache = self.conv_out.step(functional.silu(self.norm_out(x, latent)), next(past))
        new_caches.append(cache)
        return x, new_caches

    def decode(self, latent: Tensor, chunks: tuple[int, ...] = CHUNKS) -> Tensor:
        """Decodes a turn in chunks: latent [B, 16, 5, h, w], divided by the scale -> frames [B, 3, 17, H, W]."""
        caches: list[Tensor] | None = None
        frames = []
        start = 0
        for length in chunks:
            decoded, caches = self(latent[:, :, start : start + length], caches)
            frames.append(decoded)
            start += length
        return torch.cat(frames, dim=2)
