"""Writes the predictor's two ONNX parts, prefill and extend, over one file of weights.

It knows the contract's names and axes; nothing of prompts. Shape letters as in models/predictor.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from animegamer_export.onnx_file import Case, Graph, Precision, Written, check, prepared, write
from animegamer_rt.models.predictor import Predictor

WEIGHTS = "predictor.weights"
TOLERANCE = 1e-3
"""float32 in another order of operations, over all layers."""

PREFILL_INPUTS = ("ids", "history_index", "masks", "history_shots", "readout_start")
PREFILL_OUTPUTS = ("shot", "logits", "keys", "values")
EXTEND_INPUTS = ("tokens", "keys", "values")
EXTEND_OUTPUTS = ("logits", "next_keys", "next_values")
_CACHE_AXES = {3: "cached_tokens"}
_PREFILL_AXES = {
    "ids": {1: "tokens"},
    "history_index": {1: "tokens"},
    "masks": {1: "tokens", 2: "tokens"},
    "history_shots": {0: "history_turns"},
}
_EXTEND_AXES = {"tokens": {1: "new_tokens"}, "keys": _CACHE_AXES, "values": _CACHE_AXES}


class _Prefill(nn.Module):
    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        self.predictor = predictor

    def forward(
        self, ids: Tensor, history_index: Tensor, masks: Tensor, history_shots: Tensor, readout_start: Tensor
    ) -> tuple[Tensor, ...]:
        return self.predictor.prefill(ids, history_index, masks, history_shots, readout_start)


class _Extend(nn.Module):
    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        self.predictor = predictor

    def forward(self, tokens: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, ...]:
        return self.predictor.extend(tokens, keys, values)


def export_predictor(predictor: Predictor, folder: Path, precision: Precision = "fp16") -> Written:
    """Writes predictor_prefill.onnx, predictor_extend.onnx and their weights; checked on prompts with history.

    Raises BundleError when onnxruntime does not answer as torch does.
    """
    predictor = prepared(predictor, precision)
    with torch.no_grad():
        graphs = predictor_graphs(predictor)
        parts = write(folder, graphs, WEIGHTS, precision)
        return Written(parts, check(folder, list(_cases(predictor)), TOLERANCE))


def predictor_graphs(predictor: Predictor) -> list[Graph]:
    """Both graphs with example inputs: a prompt of two earlier turns, and three tokens after it. Runs nothing."""
    size = predictor.size
    prompt = example_prompt(predictor, history_turns=2)
    cache = torch.zeros(size.layers, 1, size.kv_heads, prompt[0].shape[1], size.head_width)
    extend = (torch.zeros(1, 3, dtype=torch.int64), cache, cache.clone())
    return [
        Graph(
            "predictor_prefill",
            _Prefill(predictor),
            dict(zip(PREFILL_INPUTS, prompt, strict=True)),
            PREFILL_OUTPUTS,
            _PREFILL_AXES,
        ),
        Graph(
            "predictor_extend",
            _Extend(predictor),
            dict(zip(EXTEND_INPUTS, extend, strict=True)),
            EXTEND_OUTPUTS,
            _EXTEND_AXES,
        ),
    ]


def example_prompt(predictor: Predictor, history_turns: int, words: int = 5, seed: int = 0) -> tuple[Tensor, ...]:
    """A random prompt with the structure of a real one: earlier shots in place, the current queries mutually open."""
    size, random = predictor.size, torch.Generator().manual_seed(seed)
    block = words + size.shot_tokens + 4
    length = (history_turns + 1) * block
    ids = torch.randint(size.vocabulary, (1, length), generator=random)
    history_index = torch.full((2, length), -1)
    for turn in range(history_turns):
        start = turn * block + words
        rows = torch.arange(turn * size.shot_tokens, (turn + 1) * size.shot_tokens)
        history_index[:, start : start + size.shot_tokens] = rows
    masks = torch.ones(2, length, length, dtype=torch.bool).tril()
    first = history_turns * block + words
    queries = slice(first, first + size.shot_tokens)
    masks[0, queries, queries] = True
    shots = torch.randn(max(history_turns, 1), size.shot_tokens, size.shot_width, generator=random)
    return ids, history_index, masks, shots, torch.tensor([first])


def _cases(predictor: Predictor) -> Iterator[tuple[str, Case]]:
    """Prompts of 0, 1 and 3 earlier turns; after each, three extends of 1, 3 and 3 tokens, each over the last cache."""
    for history_turns, words in ((0, 3), (1, 7), (3, 4)):
        prompt = example_prompt(predictor, history_turns, words, seed=1 + history_turns)
        answer = predictor.prefill(*prompt)
        inputs = dict(zip(PREFILL_INPUTS, prompt, strict=True))
        yield (
            "predictor_prefill",
            Case(f"{history_turns} earlier turns", inputs, dict(zip(PREFILL_OUTPUTS, answer, strict=True))),
        )
        _, _, keys, values = answer
        for step, new in enumerate((1, 3, 3)):
            tokens = torch.randint(predictor.size.vocabulary, (1, new), generator=torch.Generator().manual_seed(step))
            answer_extend = predictor.extend(tokens, keys, values)
            extend = dict(zip(EXTEND_INPUTS, (tokens, keys, values), strict=True))
            name = f"{history_turns} earlier turns, extend {step + 1}"
            yield "predictor_extend", Case(name, extend, dict(zip(EXTEND_OUTPUTS, answer_extend, strict=True)))
            _, keys, values = answer_extend
