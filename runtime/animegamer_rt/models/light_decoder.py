"""The light decoder: decodes latent frames to video frames with a few plain convolutions, in place of the vae decoder.

A latent frame and the one before it give four video frames; all that a chunk leaves for the next is its last latent
frame. It does not know pixels (uint8, channel order) or how many chunks a turn has. It decodes the denoiser's latent as
it is, without a scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

FRAMES_EACH = 4
"""Video frames of a latent frame; of a clip's first one only the last is shown."""
COLOURS = 3


@dataclass(frozen=True, slots=True)
class LightDecoderSize:
    """Sizes of the decoder; the defaults are pocket's.

    channels, blocks: of each stage, at least two. The first has the latent's resolution, every other one twice that of
    the one before, and the video twice that of the last.
    """

    channels: tuple[int, ...] = (192, 96, 32)
    blocks: tuple[int, ...] = (2, 2, 1)
    latent_channels: int = 16

    @property
    def upscale(self) -> int:
        """Video pixels per latent pixel, along height and along width."""
        return int(2 ** len(self.channels))


class Residual(nn.Module):
    """Two 3x3 convolutions around a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.a = nn.Conv2d(channels, channels, 3, padding=1)
        self.b = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, C, H, W] -> relu(x + its residual), of the same shape."""
        return functional.relu(x + self.b(functional.relu(self.a(x))))


class LightDecoder(nn.Module):
    """Latent frames [t, 16, h, w] -> video frames [T, 3, H, W] in about -1..1."""

    def __init__(self, size: LightDecoderSize) -> None:
        super().__init__()
        self.size = size
        widths, given, shown = size.channels, 2 * size.latent_channels, FRAMES_EACH * COLOURS
        self.linear = nn.Conv2d(given, shown * size.upscale**2, 1)
        self.stem = nn.Conv2d(given, widths[0], 3, padding=1)
        self.stages = nn.ModuleList(
            nn.Sequential(*(Residual(width) for _ in range(count)))
            for width, count in zip(widths, size.blocks, strict=True)
        )
        self.upsamples = nn.ModuleList(nn.Conv2d(width, 4 * after, 1) for width, after in pairwise(widths))
        self.skip = nn.Conv2d(given, 4 * widths[1], 1)
        self.out = nn.Conv2d(widths[-1], 4 * shown, 3, padding=1)

    def forward(self, latent: Tensor, before: Tensor | None) -> Tensor:
        """before [1, 16, h, w]: the last latent frame of the chunk before; None for the first chunk.

        The first chunk has 4t - 3 video frames, any other 4t.
        """
        return as_frames(self.decode(with_before(latent, before)), first=before is None)

    def decode(self, given: Tensor) -> Tensor:
        """Latent frames behind the ones before them, [t, 32, h, w] -> the video frames of each, [t, 12, H, W]."""
        x = self.stages[0](functional.relu(self.stem(given)))
        skip = self.skip(given)
        for upsample, stage in zip(self.upsamples, self.stages[1:], strict=True):
            wide = upsample(x) if skip is None else upsample(x) + skip
            x, skip = stage(functional.relu(functional.pixel_shuffle(wide, 2))), None
        coarse, fine = self.linear(given), self.out(x)
        return functional.pixel_shuffle(coarse, self.size.upscale) + functional.pixel_shuffle(fine, 2)


def with_before(latent: Tensor, before: Tensor | None) -> Tensor:
    """Every latent frame [t, 16, h, w] behind the one before it, [t, 32, h, w]; a clip's first one behind itself."""
    earlier = torch.cat([latent[:1] if before is None else before, latent[:-1]])
    return torch.cat([earlier, latent], dim=1)


def as_frames(shown: Tensor, first: bool) -> Tensor:
    """[t, 12, H, W] -> [T, 3, H, W]; first: of a clip, whose first latent frame shows only its last video frame."""
    frames = cast(Tensor, shown.unflatten(1, (FRAMES_EACH, COLOURS)).flatten(0, 1))
    return frames[FRAMES_EACH - 1 :] if first else frames
