"""TAEHV's tiny decoder: decodes latent frames to video frames, remembering one earlier frame in each of its blocks.

Source: github.com/madebyollin/taehv (MIT), commit 1f14a568, whose `taecvx` weights decode CogVideoX's latents. There, a
stage ends with a nearest upsampling, a 1x1 convolution that makes one or two frames of each, and a 3x3 convolution.
Here those three are one 3x3 convolution at the lower resolution and a pixel shuffle, which gives the same numbers: each
of the four new pixels reads at most 2x2 old ones. The last stage stays at the lower resolution for `conv_out` too, so
the network has no tensor of many channels at the video's resolution. `animegamer_export.checkpoints.tiny_decoder`
converts the published weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from .vae import CHUNKS

COLOURS = 3
LATENT_LIMIT = 3.0
FRAMES_AT_ONCE = 2
"""Frames that the last stage upsamples at once: its tensors are the largest, and its frames do not read one another."""


@dataclass(frozen=True, slots=True)
class TinyDecoderSize:
    """Sizes of the decoder; the defaults are those of `taecvx`.

    channels: of each stage's blocks, and of the frames that the last stage makes. doubles_time: whether a stage makes
    two frames of each. scale: the denoiser's latent is divided by it before decoding.
    """

    channels: tuple[int, ...] = (256, 128, 64, 64)
    blocks: int = 3
    doubles_time: tuple[bool, ...] = (False, True, True)
    latent_channels: int = 16
    scale: float = 1.15258426

    @property
    def upscale(self) -> int:
        """Video pixels per latent pixel, along height and along width."""
        return int(2 ** len(self.doubles_time))

    @property
    def trimmed(self) -> int:
        """Frames that a clip's first latent frame has too many: only its last one is shown."""
        return int(2 ** sum(self.doubles_time)) - 1

    def cache_shapes(self, height: int, width: int) -> list[tuple[int, int, int]]:
        """[C, H, W] of the frame that each block remembers, for latents of this height and width."""
        stages = enumerate(self.channels[:-1])
        return [(wide, height << at, width << at) for at, wide in stages for _ in range(self.blocks)]

    def working_numbers(self, height: int, width: int) -> int:
        """The most numbers that the first chunk holds at once: its caches, and in the widest block its input, the same
        with the frames moved by one, and both joined.
        """
        frames = CHUNKS[0] * int(2 ** sum(self.doubles_time[:-1]))
        widest = max(math.prod(shape) for shape in self.cache_shapes(height, width))
        return 4 * frames * widest + sum(math.prod(shape) for shape in self.cache_shapes(height, width))


class MemoryBlock(nn.Module):
    """Three 3x3 convolutions of a frame and the one before it, around a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.a = nn.Conv2d(2 * channels, channels, 3, padding=1)
        self.b = nn.Conv2d(channels, channels, 3, padding=1)
        self.c = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor, before: Tensor) -> Tensor:
        """x [t, C, H, W], before [1, C, H, W]: the frame before x -> [t, C, H, W]."""
        # In place, and without names: at full size, each of these tensors has 66 MB or more.
        h = self.a(torch.cat([x, torch.cat([before, x[:-1]])], dim=1))
        h = self.c(functional.relu(self.b(functional.relu(h, inplace=True)), inplace=True))
        return functional.relu(h.add_(x), inplace=True)


class TinyDecoder(nn.Module):
    """Latent frames [t, 16, h, w] -> video frames [T, 3, H, W] in about -1..1."""

    def __init__(self, size: TinyDecoderSize) -> None:
        super().__init__()
        self.size = size
        widths, after = size.channels[:-1], size.channels[1:]
        self.conv_in = nn.Conv2d(size.latent_channels, widths[0], 3, padding=1)
        self.stages = nn.ModuleList(nn.ModuleList(MemoryBlock(wide) for _ in range(size.blocks)) for wide in widths)
        self.upsamples = nn.ModuleList(
            nn.ModuleList(nn.Conv2d(wide, 4 * new, 3, padding=1, bias=False) for _ in range(1 + doubles))
            for wide, new, doubles in zip(widths, after, size.doubles_time, strict=True)
        )
        self.conv_out = nn.Conv2d(4 * after[-1], 4 * COLOURS, 3, padding=1)

    def forward(self, latent: Tensor, caches: list[Tensor] | None = None) -> tuple[Tensor, list[Tensor]]:
        """Decodes one chunk.

        latent [t, 16, h, w], already divided by the scale; caches of the chunk before (each [1, C, H, W]), None for the
        first. Returns frames [T, 3, H, W] (T = 4t - 3 for the first chunk, else 4t) and the caches for the next one.
        """
        x = functional.relu(self.conv_in(torch.tanh(latent / LATENT_LIMIT) * LATENT_LIMIT))
        kept: list[Tensor] = []
        for stage, blocks in enumerate(self.stages):
            x = self._upsampled(x, stage - 1) if stage > 0 else x
            assert isinstance(blocks, nn.ModuleList)
            for block in blocks:
                before = torch.zeros_like(x[:1]) if caches is None else caches[len(kept)]
                kept.append(x[-1:].clone())  # a view would keep all of x
                x = block(x, before)
        frames = torch.cat([self._upsampled(some, len(self.stages) - 1) for some in x.split(FRAMES_AT_ONCE)])
        return frames[self.size.trimmed :] if caches is None else frames, kept

    def _upsampled(self, x: Tensor, stage: int) -> Tensor:
        """What a stage makes of its blocks' [t, C, h, w]: [t or 2t, C', 2h, 2w], and the last one video frames."""
        convolutions, last = self.upsamples[stage], stage == len(self.stages) - 1
        assert isinstance(convolutions, nn.ModuleList)
        made = []
        for convolution in convolutions:
            new = convolution(x)
            new = self.conv_out(functional.relu(new, inplace=True)) if last else new
            made.append(functional.pixel_shuffle(new, 2))
        out = torch.stack(made, dim=1).flatten(0, 1) if len(made) > 1 else made[0]
        # A shuffle on a GPU loses the layout that the next stage's convolutions need.
        return out if last else out.contiguous(memory_format=torch.channels_last)
