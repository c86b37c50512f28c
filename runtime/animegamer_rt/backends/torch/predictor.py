"""The predictor engine: reads a prompt eagerly, then extends it by a few tokens over its own attention cache.

The cache holds the keys and values of the last row of each run and stays on the device. A state's choices are made
there too, so that a whole state is one graph. Shape letters: n new tokens, B rows, D hidden.
Source: MODEL.md section 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import sdpa_kernel

from animegamer_rt.backends.interface import FloatArray, IntArray, Prefill, StateSlots, TokenBatch
from animegamer_rt.errors import BackendError
from animegamer_rt.models.predictor import Block, Rotation, rotate, rotation
from animegamer_rt.models.predictor import Predictor as Network

from .attention import MASKED_BACKENDS, SDPA_LOCK
from .device import GraphCache, TorchDevice
from .merged_linear import Products, apart, merge

ANSWER_TOKENS = 64
"""Positions of the cache beyond the longest prompt; a state's tokens take 9 of them."""

CACHE_BUCKETS = (1536, 2560)
"""Sizes of the cache in positions; beyond them, those of the window (4160 for one of 4096 tokens). It grows when a
prompt needs more; an extend attends to the smallest size that holds its tokens. Four turns take about 1320."""

MASK_ALIGNMENT = 16
"""In elements; from PyTorch's attention with a mask (aten/native/transformers/attention.cpp, pad_bias)."""

StoreCache = Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]]
"""(layer, new keys, new values) -> all keys and values that this layer attends to."""


class Cache:
    """A handle on the first `length` positions of the one cache; valid until another call writes there."""

    def __init__(self, length: int) -> None:
        self.length = length


@dataclass(frozen=True, slots=True)
class MergedBlock:
    """A block with queries, keys and values as one product, and gate and up as one if they are not quantised."""

    block: Block
    queries_keys_values: Products
    gate_up: Products

    @classmethod
    def of(cls, block: Block) -> MergedBlock:
        """Merges a block's layers, in place."""
        attention, wide = block.attention, [block.gate, block.up]
        # A prompt dequantises whole weights: merged, these two need 0.2 GiB more at full size, which a small GPU lacks.
        gate_up = merge(wide) if isinstance(block.gate, nn.Linear) else apart(wide)
        return cls(block, merge([attention.query, attention.key, attention.value]), gate_up)


def merge_layers(network: Network) -> list[MergedBlock]:
    """The network's blocks, with their layers merged in place.

    On the stream that loaded them, so that one block's freed weights make room for the next block's merged ones.
    """
    return [MergedBlock.of(cast(Block, block)) for block in network.blocks]


class Predictor:
    """Implements interface.PredictorEngine, with the blocks of `merge_layers`.

    Prompts differ in length, so they run eagerly. Extending by n tokens is one CUDA graph per n, and the remaining
    choices of a state are one more; each for every size of the cache.
    """

    def __init__(
        self, torch_device: TorchDevice, network: Network, blocks: Sequence[MergedBlock], window_tokens: int
    ) -> None:
        self.torch_device, self.network, self._blocks = torch_device, network, blocks
        most = window_tokens + ANSWER_TOKENS
        self._buckets = [*(places for places in CACHE_BUCKETS if places < most), most]
        with torch_device.use():
            self._keys, self._values = self._empty_cache(), self._empty_cache()
            self._start = torch_device.zeros((1,), torch.int64)
            self._inputs = torch_device.zeros((1, ANSWER_TOKENS, network.size.hidden))
            self._logits = torch_device.zeros((network.size.vocabulary,), torch.float32)
            self._choices = torch_device.zeros((ANSWER_TOKENS,), torch.float32)
        self._slots: dict[StateSlots, list[Tensor]] = {}
        self._graphs = GraphCache(torch_device)
        # The valid handles, shortest first. Extending an older one invalidates those after it.
        self._chain: list[Cache] = []

    def prefill(self, tokens: TokenBatch, past: object | None = None) -> Prefill:
        """See interface.PredictorEngine. Invalidates every handle that came after `past`, or all of them without one.

        Raises BackendError where `past` is no longer valid or the prompt does not fit into the cache.
        """
        before = [] if past is None else self._chain_to(past)
        start, count = before[-1].length if before else 0, tokens.ids.shape[1]
        self._hold(start + count)
        network, rows = self.network, len(tokens.history_index)
        with self.torch_device.use():
            send = self.torch_device.to_device
            history = send(tokens.history_shots).to(self.torch_device.dtype)
            embedded = self._embed(tokens.ids[0])[None].expand(rows, -1, -1)
            x = network.inject(embedded, send(tokens.history_index), history)
            positions, masks = torch.arange(start + count, device=x.device), send(tokens.arrays()["masks"])
            masks = torch.cat([masks.new_ones(rows, count, start), masks], dim=2)
            masks = masks & network.in_window(positions[start:], positions)

            def store(layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
                whole = []
                for cache, new in ((self._keys[layer], keys), (self._values[layer], values)):
                    whole.append(torch.cat([cache[:, :start].expand(rows, -1, -1, -1), new], dim=2))
                    cache[:, start : start + count] = new[-1]
                return whole[0], whole[1]

            x = self._run(x, positions[start:], masks, store)
            shot = network.output_resampler(x[0].index_select(0, send(tokens.readout)))
            self._chain = [*before, Cache(start + count)]
            arrays = [self.torch_device.to_host(out.float()).numpy() for out in (shot, network.head(x[-1, -1]))]
        cache = self._chain[-1]
        return Prefill(arrays[0], arrays[1], cache, partial(self._choose_next, cache))

    def extend(self, tokens: IntArray, cache: object) -> tuple[FloatArray, object]:
        """See interface.PredictorEngine. Raises BackendError for an invalid handle or over ANSWER_TOKENS tokens."""
        count = len(tokens)
        places = self._make_room(cache, count)
        with self.torch_device.use():
            self._inputs[0, :count] = self._embed(tokens)
            self._graphs.run((count, places), lambda: self._extend(count, places))
            logits: FloatArray = self.torch_device.to_host(self._logits).numpy()
        return logits, self._chain[-1]

    def _choose_next(self, cache: Cache, slots: StateSlots, first: int) -> FloatArray:
        """See interface.ChooseNext. Raises BackendError as `extend`."""
        places = self._make_room(cache, sum(1 + len(fixed) for fixed in slots.between))
        with self.torch_device.use():
            if slots not in self._slots:
                ids = [np.array(part, np.int64) for part in (slots.options, *slots.between)]
                self._slots[slots] = [self.torch_device.to_device(ids[0]), *(self._embed(part) for part in ids)]
            self._inputs[0, 0] = self._slots[slots][1][first]
            self._graphs.run((slots, places), lambda: self._fill(*self._slots[slots], places=places))
            choices: FloatArray = self.torch_device.to_host(self._choices[: len(slots.between)]).numpy()
        return choices

    def _make_room(self, cache: object, count: int) -> int:
        """Sets the position after a handle for `count` more tokens; returns how many positions they may attend to."""
        before = self._chain_to(cache)
        start = before[-1].length
        length = start + count
        if count > ANSWER_TOKENS:
            raise BackendError("too many tokens at once", found=count, expected=f"at most {ANSWER_TOKENS}")
        self._hold(length)
        self._chain = [*before, Cache(length)]
        with self.torch_device.use():
            self._start.fill_(start)
        return self._places(length)

    def _embed(self, ids: IntArray) -> Tensor:
        """The embeddings [n, D] of tokens [n], whose table may be in host memory."""
        table = self.network.embedding.weight
        return table[torch.tensor(ids, device=table.device)].to(self.torch_device.device)

    def _fill(self, options: Tensor, embedded: Tensor, *between: Tensor, places: int) -> None:
        """The captured work of a state: extends by the chosen token and chooses the next slot's, slot by slot.

        options: ids. embedded: their embeddings. between: those of the fixed tokens.
        """
        for slot, fixed in enumerate(between):
            count = 1 + len(fixed)
            self._inputs[0, 1:count].copy_(fixed)
            self._extend(count, places)
            self._start.add_(count)
            logits = self._logits.index_select(0, options)
            best = logits.argmax(0, keepdim=True)
            self._inputs[0, :1].copy_(embedded.index_select(0, best))
            lost = ~torch.isfinite(logits).all()
            self._choices[slot : slot + 1].copy_(best.float().masked_fill(lost, torch.nan))

    def _extend(self, count: int, places: int) -> None:
        """The captured work of an extend: reads the input and start buffers, writes the cache and the logits.

        Every shape depends only on `count` and `places`, so attention runs over all places with a mask.
        """
        positions = self._start + torch.arange(count, device=self._start.device)
        cached = torch.arange(places, device=positions.device)
        mask = (positions[:, None] >= cached[None]) & self.network.in_window(positions, cached)

        def store(layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            self._keys[layer].index_copy_(1, positions, keys[0])
            self._values[layer].index_copy_(1, positions, values[0])
            return self._keys[layer][None, :, :places], self._values[layer][None, :, :places]

        x = self._run(self._inputs[:, :count], positions, mask[None], store)
        self._logits.copy_(self.network.head(x[0, -1]))

    def _run(self, x: Tensor, positions: Tensor, mask: Tensor, store: StoreCache) -> Tensor:
        """All blocks and the final norm, x [B, n, D] -> [B, n, D]; mask bool [B, n, keys], True = may attend."""
        size = self.network.size
        rotary = rotation(positions, size.head_width, size.rope_theta)
        group = size.heads // size.kv_heads
        # Grouped-query attention: query heads of a group are stacked along the query axis, so keys are not repeated.
        mask = _float_mask(mask.repeat(1, group, 1)[:, None], x.dtype)
        with SDPA_LOCK, sdpa_kernel([*MASKED_BACKENDS]):
            for number, merged in enumerate(self._blocks):
                block = merged.block
                x = x + _attend(merged, block.attention_norm(x), rotary, mask, partial(store, number))
                x = x + block.down(_gated(merged, block.mlp_norm(x)))
        out: Tensor = self.network.norm(x)
        return out

    def _chain_to(self, cache: object) -> list[Cache]:
        """The valid handles up to and including this one. Raises BackendError if it is not valid."""
        if cache not in self._chain:
            raise BackendError("an attention cache was used after a later prompt or extend had overwritten it")
        return self._chain[: self._chain.index(cache) + 1]

    def _empty_cache(self, places: int | None = None) -> Tensor:
        """Keys or values of all layers, [layers, heads, positions, width]; None: of the smallest size."""
        size = self.network.size
        return self.torch_device.zeros((size.layers, size.kv_heads, places or self._buckets[0], size.head_width))

    def _places(self, length: int) -> int:
        """Positions of the smallest cache that holds this many tokens. Raises BackendError if none does."""
        if length > self._buckets[-1]:
            raise BackendError(
                "the prompt does not fit into the predictor's cache",
                found=f"{length} tokens",
                expected=f"at most {self._buckets[-1]}",
                do="use a shorter instruction or a smaller --history-turns",
            )
        return next(places for places in self._buckets if length <= places)

    def _hold(self, length: int) -> None:
        """Grows the cache to hold this many tokens; its content stays."""
        places, before = self._places(length), self._keys.shape[2]
        if places <= before:
            return
        with self.torch_device.use():
            keys, values = self._empty_cache(places), self._empty_cache(places)
            keys[:, :, :before], values[:, :, :before] = self._keys, self._values
            self._keys, self._values = keys, values
            self._graphs = GraphCache(self.torch_device)  # earlier graphs have the smaller cache's addresses


def _float_mask(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a bool mask [B, 1, n, keys] allows and -inf elsewhere: attention would convert it in every layer.

    Rows are MASK_ALIGNMENT elements apart or a multiple of it, or the kernels would copy it in every layer too.
    """
    keys = mask.shape[-1]
    whole = torch.zeros((*mask.shape[:-1], keys + -keys % MASK_ALIGNMENT), dtype=dtype, device=mask.device)
    return whole[..., :keys].masked_fill_(~mask, -torch.inf)


def _gated(merged: MergedBlock, x: Tensor) -> Tensor:
    """The input of the MLP's last layer. Gate and up are freed here, before that layer's weight is dequantised."""
    gate, up = merged.gate_up(x)
    return functional.silu(gate) * up


def _attend(
    merged: MergedBlock,
    x: Tensor,
    rotary: Rotation,
    mask: Tensor,
    store: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
) -> Tensor:
    attention = merged.block.attention
    rows, count, _ = x.shape
    query, key, value = merged.queries_keys_values(x)
    heads = attention.heads, attention.kv_heads
    # Queries and keys turn at once: half the launches, and a prompt is not captured.
    query, key = rotate(attention.split(torch.cat([query, key], dim=-1), sum(heads)), rotary).split(heads, dim=1)
    keys, values = store(key, attention.split(value, attention.kv_heads))
    grouped_query = query.reshape(rows, attention.kv_heads, -1, attention.width)
    mixed = functional.scaled_dot_product_attention(grouped_query, keys, values, attn_mask=mask)
    mixed = mixed.reshape(rows, attention.heads, count, attention.width)
    out: Tensor = attention.output(mixed.transpose(1, 2).flatten(2))
    return out
