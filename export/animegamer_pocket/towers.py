"""Pocket's small text and image towers, with as many tokens as T5 and CLIP.

text: token ids -> [B, 30, C]; features after the text's end are zero. image: a picture -> [B, 196, 224]: it is resized
to 112 x 112 and cut into 14 x 14 patches of 8 x 8 pixels, each with its position, because the denoiser adds no
positions to shot tokens.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .config import PATCH_PIXELS, POSITION_WAVES

TEXT_TOKENS = 30
GRID = 14


class TextTower(nn.Module):
    """Token and position embeddings of a motion text: ids int64 [B, 30], 0 for padding -> [B, 30, C]."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(vocabulary, width)
        self.position_embedding = nn.Embedding(TEXT_TOKENS, width)

    def forward(self, ids: Tensor) -> Tensor:
        present = (ids != 0).unsqueeze(-1).to(self.token_embedding.weight.dtype)
        positions = torch.arange(TEXT_TOKENS, device=ids.device)
        return torch.as_tensor((self.token_embedding(ids) + self.position_embedding(positions)) * present)


class ImageTower(nn.Module):
    """A picture float32 [B, 3, H, W] in -1..1 -> [B, 196, 224]: its patches and their positions. No weights."""

    positions: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("positions", patch_positions(), persistent=False)

    def forward(self, picture: Tensor) -> Tensor:
        side = GRID * PATCH_PIXELS
        small = F.interpolate(picture, (side, side), mode="bicubic", align_corners=True)
        patches = F.unfold(small, PATCH_PIXELS, stride=PATCH_PIXELS).transpose(1, 2)  # [B, 196, 192]
        return torch.cat([patches, self.positions.expand(patches.shape[0], -1, -1)], dim=2)


def patch_positions() -> Tensor:
    """Positional encoding, float32 [196, 32]: sines and cosines of 1..8 quarter turns, across and down the picture."""
    centres = (torch.arange(GRID) + 0.5) / GRID
    angles = centres[:, None] * (math.pi / 2) * torch.arange(1, POSITION_WAVES + 1)
    waves = torch.cat([angles.sin(), angles.cos()], dim=1)  # [14, 16]
    along_x = waves[None].expand(GRID, -1, -1)
    along_y = waves[:, None].expand(-1, GRID, -1)
    return torch.cat([along_x, along_y], dim=2).reshape(GRID * GRID, -1)


def pad_text(ids: list[int]) -> list[int]:
    """Exactly 30 ids: cut at 30, or padded with zeros."""
    return (ids + [0] * TEXT_TOKENS)[:TEXT_TOKENS]
