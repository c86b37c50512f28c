"""The predictor part: prompts read plainly, then a few tokens at a time over a cache of a fixed size.

Knows the network's layers and the contract; nothing of prompts or strengths. The cache holds the last row of
each run and never leaves the device. n new tokens, c cached ones. Source: MODEL.md section 2.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import sdpa_kernel

from animegamer_rt.backends.interface import FloatArray, IntArray, Prefill, TokenBatch

from ...errors import BackendError
from ...models.predictor import Block, Rotation, rotate, rotation
from ...models.predictor import Predictor as Network
from .attention import CHOOSING, WITH_MASKS
from .device import GraphCache, TorchDevice

ANSWER_TOKENS = 64
"""Places of the cache beyond the longest prompt: a state's answer is 9 tokens."""

Keep = Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]]


class Cache:
    """The first `length` places of the one cache, as long as nothing else was written there."""

    def __init__(self, length: int) -> None:
        self.length = length


class Predictor:
    """contract.PredictorPart. Prompts are read plainly, as they differ in length; extending is a graph."""

    def __init__(self, torch_device: TorchDevice, network: Network, window_tokens: int) -> None:
        self.torch_device, self.network = torch_device, network
        self._blocks = [cast(Block, block) for block in network.blocks]
        size = network.size
        self.places = window_tokens + ANSWER_TOKENS
        with torch_device.use():
            cache = (size.layers, size.kv_heads, self.places, size.head_width)
            self._keys, self._values = torch_device.zeros(cache), torch_device.zeros(cache)
            self._start = torch_device.zeros((1,), torch.int64)
            self._tokens = torch_device.zeros((1, ANSWER_TOKENS), torch.int64)
            self._logits = torch_device.zeros((size.vocabulary,), torch.float32)
        self._replays = GraphCache(torch_device)
        # Who wrote the cache, shortest first: extending an older one again drops what came after it.
        self._chain: list[Cache] = []

    def prefill(self, tokens: TokenBatch, past: object | None = None) -> Prefill:
        """What is read; without a past, every earlier cache is gone, with one, all that came after it."""
        before = [] if past is None else self._until(past)
        start, count = before[-1].length if before else 0, tokens.ids.shape[1]
        self._check_room(start + count)
        network, rows = self.network, len(tokens.masks)
        with self.torch_device.use():
            send = self.torch_device.to_device
            history = send(tokens.history_shots).to(self.torch_device.dtype)
            x = network.embed(send(tokens.ids).expand(rows, -1), send(tokens.history_index), history)
            places, masks = torch.arange(start + count, device=x.device), send(tokens.masks)
            masks = torch.cat([masks.new_ones(rows, count, start), masks], dim=2)
            masks = masks & network.near(places[start:], places)

            def keep(layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
                whole = []
                for cache, new in ((self._keys[layer], keys), (self._values[layer], values)):
                    whole.append(torch.cat([cache[:, :start].expand(rows, -1, -1, -1), new], dim=2))
                    cache[:, start : start + count] = new[-1]
                return whole[0], whole[1]

            x = self._run(x, places[start:], masks, keep)
            shot = network.output_resampler(x[0].index_select(0, send(tokens.readout)))
            self._chain = [*before, Cache(start + count)]
            arrays = [self.torch_device.to_host(out.float()).numpy() for out in (shot, network.head(x[-1, -1]))]
        return Prefill(arrays[0], arrays[1], self._chain[-1])

    def extend(self, tokens: IntArray, cache: object) -> tuple[FloatArray, object]:
        """Logits after the tokens; a cache that something else was written over is refused."""
        before, count = self._until(cache), len(tokens)
        start = before[-1].length
        self._check_room(start + count)
        if count > ANSWER_TOKENS:
            raise BackendError("too many tokens at once", found=count, expected=f"at most {ANSWER_TOKENS}")
        self._chain = [*before, Cache(start + count)]
        with self.torch_device.use():
            self._tokens[0, :count] = self.torch_device.to_device(np.ascontiguousarray(tokens, np.int64))
            self._start.fill_(start)
            self._replays.run(count, lambda: self._extend(count))
            logits: FloatArray = self.torch_device.to_host(self._logits).numpy()
        return logits, self._chain[-1]

    def _extend(self, count: int) -> None:
        """Reads tokens and start, writes the cache's next places and the logits; every shape is fixed by `count`."""
        positions = self._start + torch.arange(count, device=self._start.device)
        places = torch.arange(self.places, device=positions.device)
        mask = (positions[:, None] >= places[None]) & self.network.near(positions, places)

        def keep(layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            self._keys[layer].index_copy_(1, positions, keys[0])
            self._values[layer].index_copy_(1, positions, values[0])
            return self._keys[layer][None], self._values[layer][None]

        x = self._run(self.network.embedding(self._tokens[:, :count]), positions, mask[None], keep)
        self._logits.copy_(self.network.head(x[0, -1]))

    def _run(self, x: Tensor, positions: Tensor, mask: Tensor, keep: Keep) -> Tensor:
        """All blocks and the final norm: x [B, n, D], mask bool [B, n, keys]; `keep` gives what a layer attends to."""
        size = self.network.size
        turn = rotation(positions, size.head_width, size.rope_theta)
        group = size.heads // size.kv_heads
        # The heads of a group ask the same keys: they are so many more queries, and no key is repeated in memory.
        mask = mask[:, None].repeat(1, 1, group, 1)
        with CHOOSING, sdpa_kernel([*WITH_MASKS]):
            for number, block in enumerate(self._blocks):
                x = x + _attend(block, block.attention_norm(x), turn, mask, partial(keep, number))
                h = block.mlp_norm(x)
                x = x + block.down(functional.silu(block.gate(h)) * block.up(h))
        out: Tensor = self.network.norm(x)
        return out

    def _until(self, cache: object) -> list[Cache]:
        """The chain up to a cache and with it."""
        if cache not in self._chain:
            raise BackendError("an attention cache was used after a later prompt or extend had taken its memory")
        return self._chain[: self._chain.index(cache) + 1]

    def _check_room(self, length: int) -> None:
        if length > self.places:
            raise BackendError(
                "more tokens than the cache has places",
                found=length,
                expected=f"at most {self.places}",
                do="play a shorter instruction or a smaller --history-turns",
            )


def _attend(
    block: Block,
    x: Tensor,
    turn: Rotation,
    mask: Tensor,
    keep: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
) -> Tensor:
    attention = block.attention
    rows, count, _ = x.shape
    query = rotate(attention.split(attention.query(x), attention.heads), turn)
    key = rotate(attention.split(attention.key(x), attention.kv_heads), turn)
    keys, values = keep(key, attention.split(attention.value(x), attention.kv_heads))
    asking = query.reshape(rows, attention.kv_heads, -1, attention.width)
    mixed = functional.scaled_dot_product_attention(asking, keys, values, attn_mask=mask)
    mixed = mixed.reshape(rows, attention.heads, count, attention.width)
    out: Tensor = attention.output(mixed.transpose(1, 2).flatten(2))
    return out
