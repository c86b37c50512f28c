"""The text tower: the encoder of T5-v1.1, for texts of a fixed number of tokens.

There is no mask, so padding is attended to: the shot encoder was trained this way (MODEL.md section 1). The bias of
relative positions is a parameter for all pairs of the fixed length, computed once from T5's buckets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class TextTowerSize:
    """Sizes as in T5's config.json."""

    hidden: int
    layers: int
    heads: int
    head_width: int
    mlp: int
    vocabulary: int
    norm_epsilon: float = 1e-6
    buckets: int = 32
    max_distance: int = 128
    tokens: int = 30


XXL = TextTowerSize(hidden=4096, layers=24, heads=64, head_width=64, mlp=10240, vocabulary=32128)
"""google/t5-v1_1-xxl."""


class TextBlock(nn.Module):
    """Attention without scaling, then a gated MLP with GELU (tanh); no biases anywhere."""

    def __init__(self, size: TextTowerSize) -> None:
        super().__init__()
        inner = size.heads * size.head_width
        self.heads = size.heads
        self.attention_norm = nn.RMSNorm(size.hidden, eps=size.norm_epsilon)
        self.query = nn.Linear(size.hidden, inner, bias=False)
        self.key = nn.Linear(size.hidden, inner, bias=False)
        self.value = nn.Linear(size.hidden, inner, bias=False)
        self.output = nn.Linear(inner, size.hidden, bias=False)
        self.mlp_norm = nn.RMSNorm(size.hidden, eps=size.norm_epsilon)
        self.gate = nn.Linear(size.hidden, size.mlp, bias=False)
        self.up = nn.Linear(size.hidden, size.mlp, bias=False)
        self.down = nn.Linear(size.mlp, size.hidden, bias=False)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        """x [B, N, D], bias [1, heads, N, N] -> [B, N, D]."""
        hidden = self.attention_norm(x)
        query, key, value = (
            layer(hidden).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=1.0)
        x = x + self.output(attended.transpose(1, 2).flatten(2))
        hidden = self.mlp_norm(x)
        change: Tensor = self.down(F.gelu(self.gate(hidden), approximate="tanh") * self.up(hidden))
        return x + change


class TextTower(nn.Module):
    """ids int64 [B, tokens] (0 = padding, which is attended to) -> the last hidden state [B, tokens, D]."""

    def __init__(self, size: TextTowerSize) -> None:
        super().__init__()
        self.size = size
        self.embedding = nn.Embedding(size.vocabulary, size.hidden)
        self.relative_bias = nn.Parameter(torch.zeros(1, size.heads, size.tokens, size.tokens))
        self.blocks = nn.ModuleList(TextBlock(size) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.hidden, eps=size.norm_epsilon)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x, self.relative_bias)
        features: Tensor = self.norm(x)
        return features


def relative_bias(table: Tensor, size: TextTowerSize) -> Tensor:
    """The bias [1, heads, tokens, tokens] of every pair (query, key) from T5's table [buckets, heads].

    Half of the buckets are for keys after the query. In each half, the first half are single distances; the others grow
    logarithmically up to `max_distance`.
    """
    places = torch.arange(size.tokens)
    ahead = places[None, :] - places[:, None]
    half = size.buckets // 2
    exact = half // 2
    distance = ahead.abs()
    grown = torch.log(distance.clamp(min=1).float() / exact) / math.log(size.max_distance / exact) * (half - exact)
    far = (exact + grown.long()).clamp(max=half - 1)
    buckets = (ahead > 0).long() * half + torch.where(distance < exact, distance, far)
    return table[buckets].permute(2, 0, 1)[None]
