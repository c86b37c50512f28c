"""The predictor: a causal language model; a resampler reads the next shot at its query positions.

Source: MODEL.md section 2.
Shape letters: B batch, n new tokens, c cached tokens, D hidden, V vocabulary, s rows of earlier shots.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class PredictorSize:
    """Sizes of the predictor; the full-size model's are 4096, 32, 32, 8, 14336, 32284, 1920.

    sliding_window: how many tokens back a token may attend, itself included; None for no limit.
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    mlp: int
    vocabulary: int
    shot_width: int
    rms_eps: float = 1e-5
    rope_theta: float = 1e4
    sliding_window: int | None = 4096
    shot_tokens: int = 226

    @property
    def head_width(self) -> int:
        """Width of one attention head."""
        return self.hidden // self.heads


Rotation = tuple[Tensor, Tensor]
KeysValues = tuple[Tensor, Tensor]


def rotation(positions: Tensor, width: int, theta: float) -> Rotation:
    """Cosines and sines of the rotary embedding, f32 [n, width] each, at positions [n]."""
    exponents = torch.arange(0, width, 2, dtype=torch.float32, device=positions.device) / width
    # Rounded as in the reference: at position 1000 one float32 step of a frequency is 6e-5 of an angle.
    angles = positions.float()[:, None] * (1.0 / theta**exponents)[None]
    return torch.cos(angles).repeat(1, 2), torch.sin(angles).repeat(1, 2)


def rotate(x: Tensor, by: Rotation) -> Tensor:
    """Applies the rotary embedding to x [B, heads, n, width], in the rotate-half convention."""
    low, high = x.chunk(2, dim=-1)
    cosine, sine = by
    return (x * cosine + torch.cat([-high, low], dim=-1) * sine).to(x.dtype)


class Attention(nn.Module):
    """Grouped-query attention with rotary embeddings over cached and new tokens."""

    def __init__(self, size: PredictorSize) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.width = size.heads, size.kv_heads, size.head_width
        self.query = nn.Linear(size.hidden, size.heads * size.head_width, bias=False)
        self.key = nn.Linear(size.hidden, size.kv_heads * size.head_width, bias=False)
        self.value = nn.Linear(size.hidden, size.kv_heads * size.head_width, bias=False)
        self.output = nn.Linear(size.heads * size.head_width, size.hidden, bias=False)

    def split(self, x: Tensor, heads: int) -> Tensor:
        """[B, n, heads * width] -> [B, heads, n, width]."""
        return x.reshape(x.shape[0], x.shape[1], heads, self.width).transpose(1, 2)

    def forward(
        self, x: Tensor, mask: Tensor, rotary: Rotation, past: KeysValues | None, asked: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """x [B, n, D], mask [B, 1, n, c + n] as functional.scaled_dot_product_attention's, past [B, kv, c, width].

        asked i64 [a]: the positions whose output is needed; None for all n. The mask then has their rows only.
        Returns the output [B, a or n, D], and the past followed by the keys and values of the n new tokens.
        """
        asking, turned = x, rotary
        if asked is not None:
            asking, turned = x.index_select(1, asked), (rotary[0][asked], rotary[1][asked])
        query = rotate(self.split(self.query(asking), self.heads), turned)
        whole_keys = keys = rotate(self.split(self.key(x), self.kv_heads), rotary)
        whole_values = values = self.split(self.value(x), self.kv_heads)
        if past is not None:
            whole_keys = keys = torch.cat([past[0], keys], dim=2)
            whole_values = values = torch.cat([past[1], values], dim=2)
        if self.training and self.kv_heads != self.heads:
            # Fused attention with a mask has no grouped heads, and the fallback would hold all scores for backward.
            keys, values = (t.repeat_interleave(self.heads // self.kv_heads, dim=1) for t in (keys, values))
        mixed = functional.scaled_dot_product_attention(
            query, keys, values, attn_mask=mask, enable_gqa=keys.shape[1] != self.heads
        )
        return self.output(mixed.transpose(1, 2).flatten(2)), whole_keys, whole_values


class Block(nn.Module):
    """Attention and a gated MLP, each after an RMS norm."""

    def __init__(self, size: PredictorSize) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(size.hidden, eps=size.rms_eps)
        self.attention = Attention(size)
        self.mlp_norm = nn.RMSNorm(size.hidden, eps=size.rms_eps)
        self.gate = nn.Linear(size.hidden, size.mlp, bias=False)
        self.up = nn.Linear(size.hidden, size.mlp, bias=False)
        self.down = nn.Linear(size.mlp, size.hidden, bias=False)

    def forward(
        self, x: Tensor, mask: Tensor, rotary: Rotation, past: KeysValues | None, asked: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As Attention.forward."""
        attended, keys, values = self.attention(self.attention_norm(x), mask, rotary, past, asked)
        x = (x if asked is None else x.index_select(1, asked)) + attended
        h = self.mlp_norm(x)
        return x + self.down(functional.silu(self.gate(h)) * self.up(h)), keys, values


def resampler(in_width: int, out_width: int) -> nn.Sequential:
    """Linear, erf GELU, Linear between the shot's width and the language model's."""
    return nn.Sequential(nn.Linear(in_width, out_width), nn.GELU(), nn.Linear(out_width, out_width))


class Predictor(nn.Module):
    """Predicts the shot, and the logits for the game state's tokens, from a prompt."""

    def __init__(self, size: PredictorSize) -> None:
        super().__init__()
        self.size = size
        self.embedding = nn.Embedding(size.vocabulary, size.hidden)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.hidden, eps=size.rms_eps)
        self.head = nn.Linear(size.hidden, size.vocabulary, bias=False)
        self.input_resampler = resampler(size.shot_width, size.hidden)
        self.output_resampler = resampler(size.hidden, size.shot_width)

    def inject(self, tokens: Tensor, history_index: Tensor, history_shots: Tensor) -> Tensor:
        """Embeddings `tokens` [B, n, D], with earlier shots at the positions that history_index marks.

        history_index [B, n]: -1 keeps the token's embedding, k >= 0 takes row k of history_shots [s, shot_width],
        resampled; s is 1 or more.
        """
        injected = self.input_resampler(history_shots)[history_index.clamp(min=0)]
        return torch.where(history_index[..., None] >= 0, injected.to(tokens.dtype), tokens)

    def in_window(self, positions: Tensor, others: Tensor) -> Tensor:
        """bool [n, m]: whether each of `others` [m] is in the sliding window of each of `positions` [n]."""
        window = self.size.sliding_window
        first = torch.zeros_like(positions) if window is None else positions - (window - 1)
        return others[None] >= first[:, None]

    def run(
        self,
        embeddings: Tensor,
        mask: Tensor,
        positions: Tensor,
        past: list[KeysValues] | None,
        asked: Tensor | None = None,
    ) -> tuple[Tensor, list[KeysValues]]:
        """All blocks and the final norm over embeddings [B, n, D] at positions [n]; mask [B, n, c + n], bool or added.

        Returns hidden states [B, n, D] and every layer's keys and values, past ones first. asked i64 [a]: return the
        hidden states [B, a, D] of these positions only; the last block then computes no others.
        """
        rotary = rotation(positions, self.size.head_width, self.size.rope_theta)
        x, caches, last = embeddings, [], len(self.blocks) - 1
        for layer, block in enumerate(self.blocks):
            only = asked if layer == last else None
            seen = mask if only is None else mask.index_select(1, only)
            x, keys, values = block(x, seen[:, None], rotary, None if past is None else past[layer], only)
            caches.append((keys, values))
        return self.norm(x), caches

    def forward(self, ids: Tensor, history_index: Tensor, masks: Tensor, history_shots: Tensor) -> Tensor:
        """Hidden states [B, n, D] after the final norm, for training.

        ids [B, n], history_index [B, n] into the shots of the whole batch (see `embed`), masks bool [B, n, n].
        `output_resampler` turns the hidden states of the queries into the shot, `head` those of the text into logits.
        """
        positions = torch.arange(ids.shape[1], device=ids.device)
        # The masks say which tokens may be attended to; the sliding window limits how far back.
        seen = masks & self.in_window(positions, positions)
        return self.run(self.inject(self.embedding(ids), history_index, history_shots), seen, positions, None)[0]

    def answer(
        self,
        ids: Tensor,
        history_index: Tensor,
        masks: Tensor,
        history_shots: Tensor,
        readout: Tensor,
        *cache: Tensor,
    ) -> tuple[Tensor, ...]:
        """Runs n new tokens of one row after a past of c tokens.

        ids i64 [1, n]; history_index i64 [1, n]; masks bool [1, n, n] between the new tokens, each of which may attend
        to the past; history_shots [s, shot_width]; readout i64 [r], positions. cache: each layer's keys, then its
        values, [1, kv, c, width] (c may be 0).
        Returns the shot [1, r, shot_width] read at `readout`, logits [1, V] after the last token, and the longer cache.
        """
        past, count = list(zip(cache[::2], cache[1::2], strict=True)), ids.shape[1]
        cached = cache[0].shape[2]
        positions = torch.arange(cached + count, device=ids.device)
        new_positions = positions[cached:]
        seen = torch.cat([torch.ones_like(masks[:, :, :1]).expand(-1, -1, cached), masks], dim=2)
        seen = seen & self.in_window(new_positions, positions)
        embeddings = self.inject(self.embedding(ids), history_index, history_shots)
        # Added to the scores: attention would make this of a bool mask again in every layer.
        added = torch.zeros_like(seen, dtype=embeddings.dtype).masked_fill(~seen, torch.finfo(embeddings.dtype).min)
        asked = torch.cat([readout, torch.full_like(readout[:1], count - 1)])
        hidden, longer = self.run(embeddings, added, new_positions, past, asked)
        shot, logits = self.output_resampler(hidden[0, :-1])[None], self.head(hidden[:, -1])
        return shot, logits, *(whole for layer in longer for whole in layer)
