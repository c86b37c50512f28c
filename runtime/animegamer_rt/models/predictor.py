"""The predictor: a causal language model whose query positions read out the next shot.

It does not know prompts, token names, or how the four strengths are chosen. Source: MODEL.md section 2.
Shape letters: B batch, L prompt tokens, P cached tokens, n new tokens, V vocabulary, H history shots.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class PredictorSize:
    """Sizes of the predictor; the full-size model is 4096, 32, 32, 8, 14336, 32284, 1920.

    `sliding_window` is how far back a token sees, itself included; None is all the way.
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
    """Cosines and sines [n, width] of the rotary embedding at positions [n], float32."""
    exponents = torch.arange(0, width, 2, dtype=torch.float32, device=positions.device) / width
    # Rounded as the reference rounds it: at position 1000 one float32 step of the frequency is 6e-5 of angle.
    angles = positions.float()[:, None] * (1.0 / theta**exponents)[None]
    return torch.cos(angles).repeat(1, 2), torch.sin(angles).repeat(1, 2)


def rotate(x: Tensor, by: Rotation) -> Tensor:
    """x [B, heads, n, width] turned by its positions, in the rotate-half convention."""
    low, high = x.chunk(2, dim=-1)
    cosine, sine = by
    return (x * cosine + torch.cat([-high, low], dim=-1) * sine).to(x.dtype)


class Attention(nn.Module):
    """Grouped-query attention with rotary positions over the cached and the new tokens."""

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
        self, x: Tensor, mask: Tensor, turn: Rotation, past: KeysValues | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """x [B, n, D], mask bool [B, 1, n, P + n] (True = may attend), past keys and values [B, kv, P, width].

        Returns the output [B, n, D] and the keys and values of all P + n tokens.
        """
        query = rotate(self.split(self.query(x), self.heads), turn)
        key = rotate(self.split(self.key(x), self.kv_heads), turn)
        value = self.split(self.value(x), self.kv_heads)
        if past is not None:
            key = torch.cat([past[0], key], dim=2)
            value = torch.cat([past[1], value], dim=2)
        keys, values = key, value
        if self.training and self.kv_heads != self.heads:
            # Fused attention with a mask knows no grouped heads: the fallback would hold every score for backward.
            keys, values = (t.repeat_interleave(self.heads // self.kv_heads, dim=1) for t in (key, value))
        mixed = functional.scaled_dot_product_attention(
            query, keys, values, attn_mask=mask, enable_gqa=keys.shape[1] != self.heads
        )
        return self.output(mixed.transpose(1, 2).flatten(2)), key, value


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
        self, x: Tensor, mask: Tensor, turn: Rotation, past: KeysValues | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As Attention.forward."""
        attended, keys, values = self.attention(self.attention_norm(x), mask, turn, past)
        x = x + attended
        h = self.mlp_norm(x)
        return x + self.down(functional.silu(self.gate(h)) * self.up(h)), keys, values


def resampler(in_width: int, out_width: int) -> nn.Sequential:
    """Linear, GELU (erf), Linear between the shot's width and the language model's."""
    return nn.Sequential(nn.Linear(in_width, out_width), nn.GELU(), nn.Linear(out_width, out_width))


class Predictor(nn.Module):
    """Prompt to shot and to the logits of the state's choices."""

    def __init__(self, size: PredictorSize) -> None:
        super().__init__()
        self.size = size
        self.embedding = nn.Embedding(size.vocabulary, size.hidden)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.hidden, eps=size.rms_eps)
        self.head = nn.Linear(size.hidden, size.vocabulary, bias=False)
        self.input_resampler = resampler(size.shot_width, size.hidden)
        self.output_resampler = resampler(size.hidden, size.shot_width)

    def embed(self, ids: Tensor, history_index: Tensor, history_shots: Tensor) -> Tensor:
        """Embeddings [B, L, D] of ids [B, L] with earlier shots put in their places.

        history_index [B, L]: -1 keeps the token's embedding, k >= 0 takes row k of history_shots [H, 226, shot_width]
        flattened to [H * 226, shot_width] and resampled.
        """
        injected = self.input_resampler(history_shots.flatten(0, 1))[history_index.clamp(min=0)]
        tokens = self.embedding(ids)
        return torch.where(history_index[..., None] >= 0, injected.to(tokens.dtype), tokens)

    def visible(self, new: int, total: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Which of `total` tokens each of the last `new` may see: causal [new, total] and within the window, apart."""
        position = torch.arange(total, device=device)
        distance = position[total - new :, None] - position[None]
        causal = distance >= 0
        window = self.size.sliding_window
        return causal, (distance < window if window is not None else torch.ones_like(causal))

    def run(
        self, embeddings: Tensor, mask: Tensor, start: int, past: list[KeysValues] | None
    ) -> tuple[Tensor, list[KeysValues]]:
        """All blocks and the final norm over embeddings [B, n, D] at positions start.. ; mask bool [B, n, P + n].

        Returns hidden states [B, n, D] and every layer's keys and values.
        """
        positions = torch.arange(start, start + embeddings.shape[1], device=embeddings.device)
        turn = rotation(positions, self.size.head_width, self.size.rope_theta)
        x, kept = embeddings, []
        for layer, block in enumerate(self.blocks):
            x, keys, values = block(x, mask[:, None], turn, None if past is None else past[layer])
            kept.append((keys, values))
        return self.norm(x), kept

    def forward(self, ids: Tensor, history_index: Tensor, masks: Tensor, history_shots: Tensor) -> Tensor:
        """Hidden states [B, L, D] after the final norm, for training.

        ids [B, L], history_index [B, L] into the shots of the whole batch (see `embed`), masks bool [B, L, L].
        `output_resampler` turns the hidden states of the queries into the shot, `head` those of the text into logits.
        """
        return self.run_prompt(ids, history_index, masks, history_shots)[0]

    def run_prompt(
        self, ids: Tensor, history_index: Tensor, masks: Tensor, history_shots: Tensor
    ) -> tuple[Tensor, list[KeysValues]]:
        """As `forward`, with every layer's keys and values."""
        length = ids.shape[1]
        # The prompt's masks say what may be seen of it; the model's own window bounds how far back.
        _, window = self.visible(length, length, ids.device)
        return self.run(self.embed(ids, history_index, history_shots), masks & window, 0, None)

    def prefill(
        self, ids: Tensor, history_index: Tensor, masks: Tensor, history_shots: Tensor, readout_start: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Both read-outs of one prompt in one forward of batch 2.

        Row 0 is the shot's (the current queries see each other), row 1 the causal row of the state.
        ids int64 [1, L], history_index int64 [2, L], masks bool [2, L, L], history_shots [H, 226, shot_width] with
        H >= 1 (zeros where unused), readout_start int64 [1]: the shot is read at readout_start + 0..225 of row 0.
        Returns shot [1, 226, shot_width], logits [1, V] after row 1's last token, and row 1's keys and values
        [layers, 1, kv, L, width].
        """
        hidden, kept = self.run_prompt(ids.expand(2, -1), history_index, masks, history_shots)
        places = readout_start + torch.arange(self.size.shot_tokens, device=ids.device)
        shot = self.output_resampler(hidden[0].index_select(0, places))[None]
        keys = torch.stack([layer[0][1:] for layer in kept])
        values = torch.stack([layer[1][1:] for layer in kept])
        return shot, self.head(hidden[1:, -1]), keys, values

    def extend(self, tokens: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Feed tokens int64 [1, n] after the cached ones; keys and values [layers, 1, kv, P, width].

        Returns logits [1, V] after the last token and the keys and values of all P + n tokens.
        """
        new, start = tokens.shape[1], keys.shape[3]
        causal, window = self.visible(new, start + new, tokens.device)
        past = list(zip(keys.unbind(0), values.unbind(0), strict=True))
        hidden, kept = self.run(self.embedding(tokens), (causal & window)[None], start, past)
        return (
            self.head(hidden[:, -1]),
            torch.stack([layer[0] for layer in kept]),
            torch.stack([layer[1] for layer in kept]),
        )
