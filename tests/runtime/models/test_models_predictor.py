"""Claims about the predictor that need no recording."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from animegamer_export.parts.predictor import feeds, read_prompt
from animegamer_rt.backends.interface import TokenBatch
from animegamer_rt.models.predictor import Predictor, PredictorSize
from animegamer_rt.stages.readouts import Prompt, build_readouts

TINY = PredictorSize(
    hidden=32, layers=2, heads=4, kv_heads=2, mlp=48, vocabulary=40, shot_width=12, sliding_window=None, shot_tokens=6
)
LENGTH, FIRST_QUERY = 20, 12


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def tiny(size: PredictorSize = TINY) -> Predictor:
    torch.manual_seed(0)
    return Predictor(size).eval()


def prompt(history: bool, state_sees_it: bool = True, readout_start: int = FIRST_QUERY, apart: int = 0) -> Prompt:
    """ids with the current queries at 12..17 and, with history, one earlier shot at 2..7."""
    index = np.full((2, LENGTH), -1)
    if history:
        index[: 2 if state_sees_it else 1, 2:8] = np.arange(6)
    random = np.random.default_rng(3)
    ids, shots = random.integers(40, size=LENGTH), random.standard_normal((6, 12), np.float32)
    queries = range(FIRST_QUERY, FIRST_QUERY + 6)
    return build_readouts(ids, index, shots, queries=queries, readout_start=readout_start, history_tokens=apart)


def with_ids(given: Prompt, position: int, turned: int) -> Prompt:
    """The same prompt with another token at a position."""
    ids = given.turn.ids.copy()
    ids[0, position] = turned
    return replace(given, turn=replace(given.turn, ids=ids))


def extend(predictor: Predictor, text: list[int], keys: Tensor, values: Tensor) -> tuple[Tensor, ...]:
    tokens = TokenBatch.text(np.array(text), 12)
    return predictor.answer(**feeds(tokens, (keys, values)))


def rows(given: Prompt) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The two read-outs as a batch for training: ids, index and masks [2, L, ..], and shots."""
    turn = given.turn
    ids = torch.from_numpy(turn.ids).expand(2, -1)
    return ids, *(torch.from_numpy(array) for array in (turn.history_index, turn.masks, turn.history_shots))


@torch.no_grad()
def test_extending_equals_reading_the_longer_text() -> None:
    predictor, given = tiny(), prompt(history=True)
    _, _, keys, values = read_prompt(predictor, given)
    assert keys.shape == values.shape == (2, 1, 2, LENGTH, 8)
    _, logits, keys, values = extend(predictor, [3, 1, 4], keys, values)
    assert keys.shape == values.shape == (2, 1, 2, LENGTH + 3, 8)
    ids, index, _, shots = rows(given)
    longer = torch.cat([ids[1:], torch.tensor([[3, 1, 4]])], dim=1)
    index = torch.nn.functional.pad(index[1:], (0, 3), value=-1)
    causal = torch.ones(1, LENGTH + 3, LENGTH + 3, dtype=torch.bool).tril()
    expected = predictor.head(predictor(longer, index, causal, shots)[:, -1])
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("state_sees_it", "window"), [(True, None), (False, 9)])
@torch.no_grad()
def test_both_readouts_in_one_run_equal_each_alone(state_sees_it: bool, window: int | None) -> None:
    predictor = tiny(replace(TINY, sliding_window=window))
    given = prompt(history=True, state_sees_it=state_sees_it)
    shot, logits, _, _ = read_prompt(predictor, given)
    hidden = predictor(*rows(given))
    alone = predictor.output_resampler(hidden[:1, FIRST_QUERY : FIRST_QUERY + 6])
    torch.testing.assert_close(shot, alone, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(logits, predictor.head(hidden[1:, -1]), atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_history_may_be_read_apart() -> None:
    predictor = tiny(replace(TINY, sliding_window=9))
    whole, apart = (read_prompt(predictor, prompt(history=True, apart=places)) for places in (0, 9))
    for one, other in zip(whole, apart, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_the_readout_starts_where_it_is_told() -> None:
    predictor = tiny()
    here, later = (
        read_prompt(predictor, prompt(history=False, readout_start=FIRST_QUERY + shift))[0] for shift in (0, 1)
    )
    torch.testing.assert_close(here[:, 1:], later[:, :-1])


@torch.no_grad()
def test_tokens_beyond_the_sliding_window_are_not_seen() -> None:
    predictor = tiny(replace(TINY, layers=1, sliding_window=5))
    given = prompt(history=False)
    _, logits, keys, values = read_prompt(predictor, given)
    ids = given.turn.ids[0]
    far, near = (with_ids(given, LENGTH - back, (int(ids[LENGTH - back]) + 1) % 40) for back in (6, 5))
    assert torch.equal(logits, read_prompt(predictor, far)[1])
    assert not torch.equal(logits, read_prompt(predictor, near)[1])
    extended = extend(predictor, [7], keys, values)[1]
    keys, values = keys.clone(), values.clone()
    keys[:, :, :, : LENGTH - 4], values[:, :, :, : LENGTH - 4] = 9.0, 9.0
    torch.testing.assert_close(extended, extend(predictor, [7], keys, values)[1])


def test_a_batch_trains_every_parameter_and_agrees_with_play() -> None:
    predictor, (ids, index, masks, shots) = tiny(), rows(prompt(history=True))
    shots = torch.cat([shots, shots * 2])
    # The second sample's history is the second shot of the batch.
    index[1, 2:8] += 6
    masks = masks[:1].expand(2, -1, -1)
    with torch.no_grad():
        played = predictor(ids, index, masks, shots)
    trained = predictor.train()(ids, index, masks, shots)
    torch.testing.assert_close(trained, played, atol=1e-5, rtol=1e-4)
    (predictor.output_resampler(trained).square().mean() + predictor.head(trained).square().mean()).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in predictor.parameters())
