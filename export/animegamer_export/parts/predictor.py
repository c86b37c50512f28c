"""Writes the predictor's ONNX part: one graph for prefill and extend.

Shape letters as in models/predictor.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from animegamer_export.onnx_io.write import Case, ExportResult, Graph, Precision, check_outputs, export_copy, write
from animegamer_rt.backends.interface import TokenBatch
from animegamer_rt.bundle.roles import CACHE_PREFIX
from animegamer_rt.models.predictor import Predictor
from animegamer_rt.stages.prompt import Prompt, build_readouts

WEIGHTS = "predictor.weights"
TOLERANCE = 1e-3
"""float32 in another order of operations, over all layers."""

Cache = Sequence[Tensor]
"""Each layer's keys, then its values."""
Answer = tuple[Tensor, ...]
"""Shot, logits and cache, in the order of `Predictor.answer`."""

_AXES = {
    "ids": {1: "tokens"},
    "history_index": {1: "tokens"},
    "masks": {1: "tokens", 2: "tokens"},
    "history_shots": {0: "history_tokens"},
    "readout": {0: "read_tokens"},
}


class _PredictorGraph(nn.Module):
    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        self.predictor = predictor

    def forward(
        self,
        ids: Tensor,
        history_index: Tensor,
        masks: Tensor,
        history_shots: Tensor,
        readout: Tensor,
        *cache: Tensor,
    ) -> tuple[Tensor, ...]:
        return self.predictor.answer(ids, history_index, masks, history_shots, readout, *cache)


def export_predictor(predictor: Predictor, folder: Path, precision: Precision = "fp16") -> ExportResult:
    """Writes predictor.onnx and its weights; checks prompts with and without history, and extends after them.

    Raises BundleError if the outputs of onnxruntime and torch differ.
    """
    predictor = export_copy(predictor, precision)
    with torch.no_grad():
        parts = write(folder, [predictor_graph(predictor)], WEIGHTS, precision)
        return ExportResult(parts, check_outputs(folder, list(_cases(predictor)), TOLERANCE))


def predictor_graph(predictor: Predictor) -> Graph:
    """The graph to export, with a turn after a history of two as an example."""
    size, prompt = predictor.size, example_prompt(predictor, history_turns=2)
    cached = prompt.runs[0].ids.shape[1]
    cache = [torch.zeros(1, size.kv_heads, cached, size.head_width) for _ in range(2 * size.layers)]
    # A dynamic axis needs at least 2 in the example, and a turn after its history injects no shot.
    inputs = feeds(prompt.turn.rows()[0], cache) | {"history_shots": torch.zeros(2, size.shot_width)}
    axes = _AXES | {name: {2: "cached_tokens"} for name in inputs if name.startswith(CACHE_PREFIX)}
    return Graph("predictor", _PredictorGraph(predictor), inputs, output_names(size.layers), axes)


def output_names(layers: int) -> tuple[str, ...]:
    """The graph's outputs, in the order of `Predictor.answer`."""
    return ("shot", "logits", *(f"{CACHE_PREFIX}next_{name}" for name in _cache_names(layers)))


def _cache_names(layers: int) -> list[str]:
    return [f"{what}_{layer:02}" for layer in range(layers) for what in ("keys", "values")]


def feeds(tokens: TokenBatch, past: Cache) -> dict[str, Tensor]:
    """The graph's inputs for one row by name, in the order of `Predictor.answer`, on the cache's device."""
    arrays = {name: np.ascontiguousarray(array) for name, array in tokens.arrays().items()}
    given = {name: torch.from_numpy(array).to(past[0].device) for name, array in arrays.items()}
    given["history_shots"] = given["history_shots"].to(past[0].dtype)
    names = _cache_names(len(past) // 2)
    return given | {f"{CACHE_PREFIX}{name}": value for name, value in zip(names, past, strict=True)}


def empty_cache(predictor: Predictor) -> Cache:
    """An empty KV cache."""
    size = predictor.size
    return [predictor.embedding.weight.new_zeros(1, size.kv_heads, 0, size.head_width)] * (2 * size.layers)


def read(predictor: Predictor, tokens: TokenBatch, past: Cache) -> Answer:
    """`Predictor.answer` to one row or two: the shot is the first row's, all else the last one's."""
    answers = [predictor.answer(*feeds(row, past).values()) for row in tokens.rows()]
    return answers[0][0], *answers[-1][1:]


def read_prompt(predictor: Predictor, prompt: Prompt) -> Answer:
    """Both read-outs in torch, run by run, like `animegamer_rt.stages.predictor.read` with an engine."""
    past = empty_cache(predictor)
    for tokens in prompt.runs:
        answer = read(predictor, tokens, past)
        past = answer[2:]
    return answer


def example_prompt(predictor: Predictor, history_turns: int, words: int = 5, seed: int = 0) -> Prompt:
    """A random prompt with the structure of a real one: earlier shots, and queries that attend to each other."""
    size, random = predictor.size, np.random.default_rng(seed)
    block = words + size.shot_tokens + 4
    first, length = history_turns * block + words, (history_turns + 1) * block
    index = np.full((2, length), -1)
    for turn in range(history_turns):
        start, row = turn * block + words, turn * size.shot_tokens
        index[:, start : start + size.shot_tokens] = np.arange(row, row + size.shot_tokens)
    return build_readouts(
        random.integers(size.vocabulary, size=length),
        index,
        random.standard_normal((max(history_turns, 1) * size.shot_tokens, size.shot_width), np.float32),
        queries=range(first, first + size.shot_tokens),
        readout_start=first,
        history_tokens=history_turns * block,
        history_turns=history_turns,
    )


def _cases(predictor: Predictor) -> Iterator[tuple[str, Case]]:
    """Prompts with 0, 1 and 3 earlier turns; after each, extends of 1, 3 and 3 tokens, each over the last cache."""
    for history_turns, words in ((0, 3), (1, 7), (3, 4)):
        prompt = example_prompt(predictor, history_turns, words, seed=1 + history_turns)
        runs = list(zip(("turn", "history"), reversed(prompt.runs), strict=False))[::-1]
        random = np.random.default_rng(history_turns)
        for step, count in enumerate((1, 3, 3)):
            text = random.integers(predictor.size.vocabulary, size=count)
            runs.append((f"extend {step + 1}", TokenBatch.text(text, predictor.size.shot_width)))
        past = empty_cache(predictor)
        for name, tokens in runs:
            for row in tokens.rows():
                inputs = feeds(row, past)
                answer = predictor.answer(*inputs.values())
                outputs = dict(zip(output_names(predictor.size.layers), answer, strict=True))
                yield "predictor", Case(f"{history_turns} earlier turns, {name}", inputs, outputs)
            past = answer[2:]
