"""The denoiser: a diffusion transformer over shot tokens and latent patches, predicting v.

Guidance and solver are in denoiser_step.py.
Source: MODEL.md section 4 (Denoiser). Shape letters: B batch, S tokens, D hidden, P patches of all latent frames.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

BLOCK_NORM_EPSILON = 1e-5
HEAD_NORM_EPSILON = 1e-6
WAVELENGTH = 10000.0
# Shift, scale and gate, for attention and for the MLP, for image tokens and for shot tokens.
MODULATIONS_PER_BLOCK = 12


@dataclass(frozen=True, slots=True)
class DenoiserSize:
    """Sizes of the denoiser; the full-size model's are 1920, 30, 30, 512, 60, 90.

    height_interpolation and width_interpolation divide patch indices before they become positions.
    """

    hidden: int
    layers: int
    heads: int
    time_width: int
    latent_height: int
    latent_width: int
    latent_frames: int = 5
    latent_channels: int = 16
    patch: int = 2
    shot_tokens: int = 226
    height_interpolation: float = 1.875
    width_interpolation: float = 1.875

    @property
    def patch_grid(self) -> tuple[int, int, int]:
        """Patches along time, height and width."""
        return self.latent_frames, self.latent_height // self.patch, self.latent_width // self.patch


def sinusoid(positions: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Sines and cosines, each [N, width/2], of positions [N] at frequencies 10000^(-i/half), in positions' dtype."""
    half = width // 2
    # Divided last, as in the reference: unless half is a power of two, one bit of a frequency is 1e-5 of an angle.
    exponents = -math.log(WAVELENGTH) * torch.arange(half, dtype=positions.dtype, device=positions.device) / half
    angles = positions[:, None] * torch.exp(exponents)[None]
    return torch.sin(angles), torch.cos(angles)


def position_table(size: DenoiserSize) -> Tensor:
    """Positions of the patches [P, D] float32: temporal quarter, then width and height, each cat(sin, cos).

    Indices are divided in float32 and the waves taken in float64, as in the checkpoints' table: equal bit by bit.
    Source: MODEL.md section 4.
    """
    frames, rows, columns = size.patch_grid
    temporal, spatial = size.hidden // 4, size.hidden // 4 * 3

    def axis(count: int, divisor: float, width: int) -> Tensor:
        return torch.cat(sinusoid((torch.arange(count, dtype=torch.float32) / divisor).double(), width), dim=1)

    grid = (frames, rows, columns)
    along_time = axis(frames, 1.0, temporal)[:, None, None].expand(*grid, -1)
    along_height = axis(rows, size.height_interpolation, spatial // 2)[None, :, None].expand(*grid, -1)
    along_width = axis(columns, size.width_interpolation, spatial // 2)[None, None].expand(*grid, -1)
    return torch.cat([along_time, along_width, along_height], dim=3).reshape(-1, size.hidden).float()


class ScalarEmbedding(nn.Module):
    """Embeds one number per row: the timestep or the motion scope."""

    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.fc_in = nn.Linear(hidden, width)
        self.fc_out = nn.Linear(width, width)

    def forward(self, value: Tensor) -> Tensor:
        """[B] -> [B, width]."""
        sine, cosine = sinusoid(value.float(), self.hidden)
        # Here the order is cat(cos, sin); the position table's is cat(sin, cos).
        waves = torch.cat([cosine, sine], dim=1).to(self.fc_in.weight.dtype)
        out: Tensor = self.fc_out(functional.silu(self.fc_in(waves)))
        return out


class Attention(nn.Module):
    """Full attention over all tokens, with a layer norm on each head of queries and keys."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.query_norm = nn.LayerNorm(hidden // heads, eps=HEAD_NORM_EPSILON)
        self.key_norm = nn.LayerNorm(hidden // heads, eps=HEAD_NORM_EPSILON)
        self.output = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """[B, S, D] -> [B, S, D]."""
        batch, tokens, hidden = x.shape
        query, key, value = self.qkv(x).reshape(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(self.query_norm(query), self.key_norm(key), value)
        out: Tensor = self.output(mixed.transpose(1, 2).reshape(batch, tokens, hidden))
        return out


class Block(nn.Module):
    """Attention and MLP, modulated and gated by the embedding, with separate factors for image and shot tokens."""

    def __init__(self, size: DenoiserSize) -> None:
        super().__init__()
        self.shot_tokens = size.shot_tokens
        self.modulation = nn.Linear(size.time_width, MODULATIONS_PER_BLOCK * size.hidden)
        self.attention_norm = nn.LayerNorm(size.hidden, eps=BLOCK_NORM_EPSILON)
        self.attention = Attention(size.hidden, size.heads)
        self.mlp_norm = nn.LayerNorm(size.hidden, eps=BLOCK_NORM_EPSILON)
        self.mlp_in = nn.Linear(size.hidden, 4 * size.hidden)
        self.mlp_out = nn.Linear(4 * size.hidden, size.hidden)

    def each_kind(self, x: Tensor, shot: Tensor, image: Tensor) -> Tensor:
        """x [B, S, D] times a factor for shot tokens and one for image tokens, each [B, 1, D]."""
        return torch.cat([x[:, : self.shot_tokens] * shot, x[:, self.shot_tokens :] * image], dim=1)

    def modulate(self, x: Tensor, shot: tuple[Tensor, Tensor], image: tuple[Tensor, Tensor]) -> Tensor:
        """x (1 + scale) + shift for x [B, S, D], with (shift, scale), each [B, 1, D], for each kind of token."""
        return torch.cat(
            [
                x[:, : self.shot_tokens] * (1 + shot[1]) + shot[0],
                x[:, self.shot_tokens :] * (1 + image[1]) + image[0],
            ],
            dim=1,
        )

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        """x [B, S, D] with shot tokens first, embedding [B, time_width] after SiLU -> [B, S, D]."""
        chunks = self.modulation(embedding)[:, None].chunk(MODULATIONS_PER_BLOCK, dim=2)
        image, shot = chunks[:6], chunks[6:]
        attended = self.attention(self.modulate(self.attention_norm(x), (shot[0], shot[1]), (image[0], image[1])))
        x = x + self.each_kind(attended, shot[2], image[2])
        inner = self.mlp_in(self.modulate(self.mlp_norm(x), (shot[3], shot[4]), (image[3], image[4])))
        return x + self.each_kind(self.mlp_out(functional.gelu(inner, approximate="tanh")), shot[5], image[5])


class Head(nn.Module):
    """Converts image tokens to v."""

    def __init__(self, size: DenoiserSize) -> None:
        super().__init__()
        self.size = size
        self.norm = nn.LayerNorm(size.hidden, eps=HEAD_NORM_EPSILON)
        self.modulation = nn.Linear(size.time_width, 2 * size.hidden)
        self.output = nn.Linear(size.hidden, size.latent_channels * size.patch**2)

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        """x [B, P, D], embedding [B, time_width] after SiLU -> [B, frames, channels, h, w]."""
        shift, scale = self.modulation(embedding)[:, None].chunk(2, dim=2)
        patches = self.output(self.norm(x) * (1 + scale) + shift)
        frames, rows, columns = self.size.patch_grid
        channels, patch = self.size.latent_channels, self.size.patch
        # Patch features are (channel, row in the patch, column in the patch).
        patches = patches.reshape(-1, frames, rows, columns, channels, patch, patch).permute(0, 1, 4, 2, 5, 3, 6)
        out: Tensor = patches.reshape(-1, frames, channels, rows * patch, columns * patch)
        return out


class Denoiser(nn.Module):
    """Predicts v of a noisy latent, given timestep, motion scope and shot."""

    positions: Tensor

    def __init__(self, size: DenoiserSize) -> None:
        super().__init__()
        self.size = size
        self.time = ScalarEmbedding(size.hidden, size.time_width)
        self.motion = ScalarEmbedding(size.hidden, size.time_width)
        self.patches = nn.Conv2d(size.latent_channels, size.hidden, kernel_size=size.patch, stride=size.patch)
        # A persistent buffer, because the published checkpoints store the table.
        self.register_buffer("positions", position_table(size))
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.final_norm = nn.LayerNorm(size.hidden, eps=BLOCK_NORM_EPSILON)
        self.head = Head(size)

    def embed_patches(self, latent: Tensor) -> Tensor:
        """latent [B, 5, 16, h, w] -> [B, P, D] in time, height, width order, without positions."""
        features: Tensor = self.patches(latent.flatten(0, 1))
        return features.flatten(2).transpose(1, 2).reshape(len(latent), -1, self.size.hidden)

    def forward(self, latent: Tensor, timestep: Tensor, motion_scope: Tensor, shot: Tensor) -> Tensor:
        """v of the same shape as latent.

        latent [B, 5, 16, h, w]; timestep [B] in 0..999; motion_scope [B]; shot [B, 226, D].
        """
        embedding = functional.silu(self.time(timestep) + self.motion(motion_scope))
        x = torch.cat([shot, self.embed_patches(latent) + self.positions], dim=1)
        for block in self.blocks:
            x = block(x, embedding)
        out: Tensor = self.head(self.final_norm(x)[:, self.size.shot_tokens :], embedding)
        return out
