"""The encoder of pocket's VAE: clip -> latent distribution. Only needed for training.

The four frames of a latent frame become channels; averaging them would lose the direction of motion.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LATENT_CHANNELS = 16
WIDTHS = (64, 96, 128)
FRAMES_PER_LATENT = 4  # the first frame of a clip has its own latent frame


class _ResBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(4, channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm2 = nn.GroupNorm(4, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.conv1(F.silu(self.norm1(x)))
        change: Tensor = self.conv2(F.silu(self.norm2(hidden)))
        return x + change


class VaeEncoder(nn.Module):
    """[B, 3, T, H, W] pixels in -1..1 with T = 1 + 4k -> mean and log variance, each [B, 16, 1 + k, H/8, W/8]."""

    def __init__(self) -> None:
        super().__init__()
        first, second, third = WIDTHS
        self.stem = nn.Conv2d(3 * FRAMES_PER_LATENT * 4, first, 3, padding=1)
        self.body = nn.Sequential(
            _ResBlock(first),
            nn.Conv2d(first, second, 4, stride=2, padding=1),
            _ResBlock(second),
            nn.Conv2d(second, third, 4, stride=2, padding=1),
            _ResBlock(third),
            _ResBlock(third),
        )
        self.head = nn.Conv2d(third, 2 * LATENT_CHANNELS, 1)

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        batch, _, frames, height, width = pixels.shape
        first = pixels[:, :, :1].repeat_interleave(FRAMES_PER_LATENT, dim=2)
        ordered = torch.cat([first, pixels[:, :, 1:]], dim=2)  # [B, 3, 4(1+k), H, W]
        latent_frames = ordered.shape[2] // FRAMES_PER_LATENT
        groups = ordered.reshape(batch, 3, latent_frames, FRAMES_PER_LATENT, height, width)
        groups = groups.permute(0, 2, 3, 1, 4, 5).reshape(batch * latent_frames, -1, height, width)
        hidden = self.stem(F.pixel_unshuffle(groups, 2).contiguous(memory_format=torch.channels_last))
        moments = self.head(F.silu(self.body(hidden))).float()
        moments = moments.reshape(batch, latent_frames, -1, *moments.shape[-2:]).transpose(1, 2)
        mean, log_variance = moments.chunk(2, dim=1)
        return mean, log_variance.clamp(-12.0, 4.0)
