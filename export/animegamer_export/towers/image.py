"""The image tower: normalisation of the picture, and a CLIP vision transformer without its last block.

`animegamer_rt.stages.image` resizes the picture. The class token is dropped; the last block, the norm after it and the
projection are not run (MODEL.md section 1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Of all published CLIP models.
MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)
NORMALISATION: Mapping[str, Callable[[], Tensor]] = MappingProxyType(
    {"mean": lambda: _of_colours(MEAN), "deviation": lambda: _of_colours(STD)}
)
"""Buffers that are not in the file: mean and standard deviation of the colours, [1, 3, 1, 1]."""


@dataclass(frozen=True, slots=True)
class ImageTowerSize:
    """Sizes of a CLIP vision transformer: `grid` patches per side; `layers` includes the last, which is not run."""

    width: int
    layers: int
    heads: int
    patch: int
    grid: int
    mlp: int
    quick_gelu: bool = False

    @property
    def side(self) -> int:
        """Height and width of the picture in pixels."""
        return self.grid * self.patch


VIT_B_16 = ImageTowerSize(width=768, layers=12, heads=12, patch=16, grid=14, mlp=3072)
"""laion's CLIP-ViT-B-16."""


def _of_colours(values: Sequence[float]) -> Tensor:
    return torch.tensor(values).view(1, 3, 1, 1)


class ImageBlock(nn.Module):
    """Pre-norm attention and MLP."""

    def __init__(self, size: ImageTowerSize) -> None:
        super().__init__()
        self.heads, self.quick_gelu = size.heads, size.quick_gelu
        self.attention_norm = nn.LayerNorm(size.width)
        self.qkv = nn.Linear(size.width, 3 * size.width)
        self.output = nn.Linear(size.width, size.width)
        self.mlp_norm = nn.LayerNorm(size.width)
        self.mlp_in = nn.Linear(size.width, size.mlp)
        self.mlp_out = nn.Linear(size.mlp, size.width)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, N, W] -> [B, N, W]."""
        qkv = self.qkv(self.attention_norm(x)).unflatten(-1, (3, self.heads, -1))
        query, key, value = (part.transpose(1, 2) for part in qkv.unbind(2))
        attended = F.scaled_dot_product_attention(query, key, value)
        x = x + self.output(attended.transpose(1, 2).flatten(2))
        hidden = self.mlp_in(self.mlp_norm(x))
        hidden = hidden * torch.sigmoid(1.702 * hidden) if self.quick_gelu else F.gelu(hidden)
        change: Tensor = self.mlp_out(hidden)
        return x + change


class ImageTower(nn.Module):
    """A picture float32 [B, 3, side, side] in -1..1 -> the features of its patches [B, grid * grid, W]."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, size: ImageTowerSize) -> None:
        super().__init__()
        self.size = size
        for name, make in NORMALISATION.items():
            self.register_buffer(name, make(), persistent=False)
        self.patches = nn.Conv2d(3, size.width, size.patch, stride=size.patch, bias=False)
        self.class_embedding = nn.Parameter(torch.zeros(size.width))
        self.place_embedding = nn.Parameter(torch.zeros(size.grid**2 + 1, size.width))
        self.norm = nn.LayerNorm(size.width)
        self.blocks = nn.ModuleList(ImageBlock(size) for _ in range(size.layers - 1))

    def forward(self, picture: Tensor) -> Tensor:
        normal = ((picture + 1) / 2 - self.mean) / self.deviation
        patches = self.patches(normal).flatten(2).transpose(1, 2)
        first = self.class_embedding.expand(patches.shape[0], 1, -1)
        x = self.norm(torch.cat([first, patches], dim=1) + self.place_embedding)
        for block in self.blocks:
            x = block(x)
        features: Tensor = x[:, 1:]
        return features
