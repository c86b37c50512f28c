"""The denoiser's network as it runs here: all modulations looked up in a table, elementwise passes in three functions.

The weights are those of `models.denoiser.Denoiser`, and so are the numbers, but for the order of operations. Guidance
and solver are `models.step`'s; it does not know plans. `fused` is the same with kernels. B rows, S tokens (shot first),
D hidden, P patches, C channels.
Source: MODEL.md section 4 (Denoiser).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional

from animegamer_rt.bundle.denoise_plan import BlockCache
from animegamer_rt.models.denoiser_step import advance

from ...models.denoiser import MODULATIONS_A_BLOCK, Block, Denoiser, DenoiserSize

IMAGE, SHOT = slice(0, 6), slice(6, 12)
"""Of a block's twelve modulations: shift, scale, gate for attention and for the MLP, of each kind of token."""

BlockFunction = Callable[[Block, Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class BlockCacheBuffer:
    """What a span of blocks adds to x, [B, S, D] in x's type: written when they are computed, read when they are not.

    Source: the differences of Delta-DiT (Chen et al. 2024) and TeaCache (Liu et al. 2024), on the fixed steps of
    DeepCache (Ma et al. 2023) and FORA (Selvaraju et al. 2024).
    """

    blocks: BlockCache
    change: Tensor

    def skips(self, number: int) -> bool:
        """Whether a block's part of x comes from here."""
        return self.blocks.reused and self.blocks.first <= number <= self.blocks.last

    def before(self, number: int, x: Tensor) -> None:
        """Notes x ahead of the span: no memory beside the cache itself."""
        if not self.blocks.reused and number == self.blocks.first:
            self.change.copy_(x)

    def after(self, number: int, x: Tensor) -> None:
        """The difference behind it."""
        if not self.blocks.reused and number == self.blocks.last:
            torch.sub(x, self.change, out=self.change)


class Transformer:
    """v of a latent under one or two shots, and what a step makes of it."""

    def __init__(self, network: Denoiser, dtype: torch.dtype) -> None:
        self.network, self.dtype, self.size = network, dtype, network.size
        self._blocks = [cast(Block, block) for block in network.blocks]
        self._run_block: BlockFunction = run_block

    def compile(self, backend: str = "inductor") -> None:
        """Has torch.compile make one function of a block, for all of them: the passes between products are fused."""
        self._run_block = torch.compile(run_block, fullgraph=True, dynamic=False, backend=backend)

    @property
    def table_dtype(self) -> torch.dtype:
        """The type in which modulations are read."""
        return self.dtype

    @property
    def modulation_width(self) -> int:
        """Numbers in one row of the table: 12 D for each block, 2 D for the head."""
        return (MODULATIONS_A_BLOCK * len(self._blocks) + 2) * self.size.hidden

    def modulations(self, timesteps: Tensor, motion_scope: Tensor) -> Tensor:
        """Everything that depends on timestep and motion scope alone, f32 [n] and [1] -> [n, modulation_width].

        One product a layer for all the steps of a plan: its weights (0.35 B at full size) are read once a turn.
        """
        network = self.network
        # The embeddings stay float32: sinusoids of timesteps to 999 do not survive 16 bits.
        embedding = network.time(timesteps) + network.motion(motion_scope)
        embedding = functional.silu(embedding).to(self.dtype)
        layers = [block.modulation for block in self._blocks] + [network.head.modulation]
        return torch.cat([layer(embedding) for layer in layers], dim=1)

    def v(self, latent: Tensor, shots: Tensor, row: Tensor) -> Tensor:
        """latent f32 [1, 5, 16, h, w], shots [B, 226, D], row [1, modulation_width] -> v f32 [B, 5, 16, h, w]."""
        return unpatchified(self.patches(latent, shots, row), self.size)

    @property
    def block_count(self) -> int:
        """How many there are."""
        return len(self._blocks)

    def patches(self, latent: Tensor, shots: Tensor, row: Tensor, kept: BlockCacheBuffer | None = None) -> Tensor:
        """As `v`, in patches: [B, P, 4 C]. `kept`: what a span of blocks adds, to be written or read."""
        network, size = self.network, self.size
        factors = row.view(-1, size.hidden)
        x = self.tokens(latent, shots)
        for number, block in enumerate(self._blocks):
            if kept is not None and kept.skips(number):
                x = x + kept.change if number == kept.blocks.first else x
                continue
            first = MODULATIONS_A_BLOCK * number
            if kept is not None:
                kept.before(number, x)
            x = self._run_block(block, x, factors[first : first + MODULATIONS_A_BLOCK])
            if kept is not None:
                kept.after(number, x)
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
        """What the blocks begin with: shots and patches, [B, 226 + P, D]."""
        patches = self.network.embed_patches(latent.to(self.dtype)) + self.network.positions
        return torch.cat([shots, patches.expand(len(shots), -1, -1)], dim=1)

    def advance(self, patches: Tensor, state: Sequence[Tensor], noise: Tensor, coefficients: Tensor) -> None:
        """Guidance and solver after `patches`: latent, last x0 and difference in place, f32 [1, 5, 16, h, w] each.

        noise: as they; coefficients f32 [8], on the device.
        """
        latent, x0_prev, difference = state
        v = unpatchified(patches, self.size)
        after = advance(v, latent, x0_prev, noise, difference, coefficients.unbind(0))
        for kept, fresh in zip(state, after, strict=True):
            kept.copy_(fresh)


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
    # [B, S, 3, H, d]: each head's layout as attention reads it, so only the norms of q and k copy.
    query, key, value = attention.qkv(x).unflatten(2, (3, attention.heads, -1)).unbind(2)
    query, key = attention.query_norm(query), attention.key_norm(key)
    mixed = functional.scaled_dot_product_attention(*(part.transpose(1, 2) for part in (query, key, value)))
    out: Tensor = attention.output(mixed.transpose(1, 2).flatten(2))
    return out


def modulate(x: Tensor, shot: Tensor, image: Tensor, shot_tokens: int) -> Tensor:
    """x(1 + scale) + shift over x [B, S, D]; shot and image: [2, D], shift and scale of that kind of token."""
    shift, scale = (each_token(x, shot[which], image[which], shot_tokens) for which in range(2))
    return torch.addcmul(shift, x, 1 + scale)


def gate(x: Tensor, change: Tensor, shot: Tensor, image: Tensor, shot_tokens: int) -> Tensor:
    """x + change times its kind of token's gate [D]."""
    return torch.addcmul(x, change, each_token(x, shot, image, shot_tokens))


def each_token(x: Tensor, shot: Tensor, image: Tensor, shot_tokens: int) -> Tensor:
    """[S, D]: the shot tokens' row, then the image tokens'."""
    is_shot = torch.arange(x.shape[1], device=x.device)[:, None] < shot_tokens
    return torch.where(is_shot, shot, image)


def unpatchified(features: Tensor, size: DenoiserSize) -> Tensor:
    """The head's patches [B, P, 4 C] as a latent f32 [B, 5, 16, h, w]. Features are (channel, row, column)."""
    frames, rows, columns = size.patch_grid
    channels, patch = size.latent_channels, size.patch
    features = features.reshape(-1, frames, rows, columns, channels, patch, patch).permute(0, 1, 4, 2, 5, 3, 6)
    return features.reshape(-1, frames, channels, rows * patch, columns * patch).float()
