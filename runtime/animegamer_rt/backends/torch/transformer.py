"""The denoiser's transformer for inference: modulations come from a table, and elementwise passes are few.

Weights and results are those of `models.denoiser.Denoiser`, up to the order of floating-point operations. Guidance and
solver are `models.denoiser_step.advance`. `fused_transformer` is the same with our kernels.
Shape letters: B rows, S tokens (the shot's first), D hidden, P patches, C latent channels.
Source: MODEL.md section 4 (Denoiser).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from animegamer_rt.models.denoiser import MODULATIONS_PER_BLOCK, Block, Denoiser, DenoiserSize
from animegamer_rt.models.denoiser_step import advance

IMAGE, SHOT = slice(0, 6), slice(6, 12)
"""Slices of a block's twelve modulations for each kind of token: shift, scale, gate of attention, then of the MLP."""


class Transformer:
    """Predicts v of a latent for one or two shots, and advances a step's state with it."""

    def __init__(self, network: Denoiser, dtype: torch.dtype) -> None:
        self.network, self.dtype, self.size = network, dtype, network.size
        self._blocks = [cast(Block, block) for block in network.blocks]

    @property
    def table_dtype(self) -> torch.dtype:
        """The dtype of the modulation table."""
        return self.dtype

    @property
    def modulation_width(self) -> int:
        """Length of one row of the modulation table: 12 D per block, 2 D for the head."""
        return (MODULATIONS_PER_BLOCK * len(self._blocks) + 2) * self.size.hidden

    def modulations(self, timesteps: Tensor, motion_scope: Tensor) -> Tensor:
        """All modulations of n timesteps for one motion scope, f32 [n] and [1] -> [n, modulation_width].

        One matrix product per layer for all steps of a plan, so that its weights (0.35 B at full size) are read once a
        turn.
        """
        network = self.network
        # The embeddings stay float32: 16 bits cannot hold the sinusoids of timesteps up to 999.
        embedding = network.time(timesteps) + network.motion(motion_scope)
        embedding = functional.silu(embedding).to(self.dtype)
        layers = [block.modulation for block in self._blocks] + [network.head.modulation]
        return torch.cat([_product(layer, embedding) for layer in layers], dim=1)

    @property
    def modulation_layers(self) -> list[nn.Linear]:
        """The blocks' layers that `modulations` reads once a turn: 0.66 GiB at full size."""
        return [block.modulation for block in self._blocks]

    def v(self, latent: Tensor, shots: Tensor, row: Tensor) -> Tensor:
        """latent f32 [1, 5, 16, h, w], shots [B, 226, D], row [1, modulation_width] -> v f32 [B, 5, 16, h, w]."""
        return unpatchify(self.patches(latent, shots, row), self.size)

    def patches(self, latent: Tensor, shots: Tensor, row: Tensor) -> Tensor:
        """As `v`, in patches [B, P, 4 C]."""
        network, size = self.network, self.size
        factors = row.view(-1, size.hidden)
        x = self.tokens(latent, shots)
        for number, block in enumerate(self._blocks):
            first = MODULATIONS_PER_BLOCK * number
            x = run_block(block, x, factors[first : first + MODULATIONS_PER_BLOCK])
        image = functional.layer_norm(
            network.final_norm(x[:, size.shot_tokens :]),
            (size.hidden,),
            network.head.norm.weight,
            network.head.norm.bias,
            network.head.norm.eps,
        )
        shift, scale = factors[-2], factors[-1]
        features: Tensor = network.head.output(torch.addcmul(shift, image, 1 + scale))
        return features

    def tokens(self, latent: Tensor, shots: Tensor) -> Tensor:
        """The blocks' input: shot tokens, then embedded patches, [B, 226 + P, D]."""
        patches = self.network.embed_patches(latent.to(self.dtype)) + self.network.positions
        return torch.cat([shots, patches.expand(len(shots), -1, -1)], dim=1)

    def advance(self, patches: Tensor, state: Sequence[Tensor], noise: Tensor, coefficients: Tensor) -> None:
        """Applies guidance and solver to the network's patches [B, P, 4 C], and updates the state in place.

        state: latent, last x0 and guidance difference, f32 [1, 5, 16, h, w] each, as noise; coefficients f32 [8].
        """
        latent, x0_prev, difference = state
        v = unpatchify(patches, self.size)
        after = advance(v, latent, x0_prev, noise, difference, coefficients.unbind(0))
        for current, following in zip(state, after, strict=True):
            current.copy_(following)


def _product(layer: nn.Linear, x: Tensor) -> Tensor:
    """The layer's output, with its weight copied to x's device if it is in host memory."""
    return functional.linear(x, layer.weight.to(x.device, non_blocking=True), layer.bias)


def run_block(block: Block, x: Tensor, factors: Tensor) -> Tensor:
    """One block: x [B, S, D], its twelve modulations [12, D] -> [B, S, D]."""
    shot_tokens = block.shot_tokens
    image, shot = factors[IMAGE], factors[SHOT]
    normed = modulate(block.attention_norm(x), shot[:2], image[:2], shot_tokens)
    x = gate(x, attend(block, normed), shot[2], image[2], shot_tokens)
    normed = modulate(block.mlp_norm(x), shot[3:5], image[3:5], shot_tokens)
    inner = functional.gelu(block.mlp_in(normed), approximate="tanh")
    return gate(x, block.mlp_out(inner), shot[5], image[5], shot_tokens)


def attend(block: Block, x: Tensor) -> Tensor:
    """Attention over all tokens: [B, S, D] -> [B, S, D]."""
    attention = block.attention
    # [B, S, 3, H, d]: attention reads heads in this layout, so only the norms of queries and keys copy.
    query, key, value = attention.qkv(x).unflatten(2, (3, attention.heads, -1)).unbind(2)
    query, key = attention.query_norm(query), attention.key_norm(key)
    mixed = functional.scaled_dot_product_attention(*(part.transpose(1, 2) for part in (query, key, value)))
    out: Tensor = attention.output(mixed.transpose(1, 2).flatten(2))
    return out


def modulate(x: Tensor, shot: Tensor, image: Tensor, shot_tokens: int) -> Tensor:
    """x (1 + scale) + shift for x [B, S, D]; shot, image [2, D]: shift and scale for that kind of token."""
    shift, scale = (per_token(x, shot[which], image[which], shot_tokens) for which in range(2))
    return torch.addcmul(shift, x, 1 + scale)


def gate(x: Tensor, change: Tensor, shot: Tensor, image: Tensor, shot_tokens: int) -> Tensor:
    """x + change * gate for x and change [B, S, D]; shot, image [D]: the gate for that kind of token."""
    return torch.addcmul(x, change, per_token(x, shot, image, shot_tokens))


def per_token(x: Tensor, shot: Tensor, image: Tensor, shot_tokens: int) -> Tensor:
    """[S, D]: `shot` [D] for each shot token, then `image` [D] for each image token."""
    is_shot = torch.arange(x.shape[1], device=x.device)[:, None] < shot_tokens
    return torch.where(is_shot, shot, image)


def unpatchify(features: Tensor, size: DenoiserSize) -> Tensor:
    """The head's patches [B, P, 4 C] as a latent f32 [B, 5, 16, h, w]; features are (channel, row, column)."""
    frames, rows, columns = size.patch_grid
    channels, patch = size.latent_channels, size.patch
    features = features.reshape(-1, frames, rows, columns, channels, patch, patch).permute(0, 1, 4, 2, 5, 3, 6)
    return features.reshape(-1, frames, channels, rows * patch, columns * patch).float()
