"""Claims about the predictor that need no recording."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from animegamer_rt.models.predictor import Predictor, PredictorSize

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


def prompt(history: bool) -> dict[str, Tensor]:
    """ids with the current queries at 12..17 and, if asked, one earlier shot at 2..7."""
    causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    opened = causal.clone()
    opened[FIRST_QUERY : FIRST_QUERY + 6, FIRST_QUERY : FIRST_QUERY + 6] = True
    index = torch.full((2, LENGTH), -1)
    if history:
        index[:, 2:8] = torch.arange(6)
    generator = torch.Generator().manual_seed(3)
    return {
        "ids": torch.randint(0, 40, (1, LENGTH), generator=generator),
        "history_index": index,
        "masks": torch.stack([opened, causal]),
        "history_shots": torch.randn(1, 6, 12, generator=generator),
        "readout_start": torch.tensor([FIRST_QUERY]),
    }


@torch.no_grad()
def test_extending_equals_prefilling_the_longer_prompt() -> None:
    predictor, given = tiny(), prompt(history=True)
    _, _, keys, values = predictor.prefill(**given)
    assert keys.shape == (2, 1, 2, LENGTH, 8)
    more = torch.tensor([[3, 1, 4]])
    logits, keys, values = predictor.extend(more, keys, values)
    assert keys.shape == values.shape == (2, 1, 2, LENGTH + 3, 8)
    longer = {
        **given,
        "ids": torch.cat([given["ids"], more], dim=1),
        "history_index": torch.nn.functional.pad(given["history_index"], (0, 3), value=-1),
        "masks": torch.ones(2, LENGTH + 3, LENGTH + 3, dtype=torch.bool).tril(),
    }
    torch.testing.assert_close(logits, predictor.prefill(**longer)[1], atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_both_readouts_in_one_forward_equal_each_alone() -> None:
    predictor, given = tiny(), prompt(history=True)
    shot, logits, _, _ = predictor.prefill(**given)
    ids, index, masks, shots = (given[key] for key in ("ids", "history_index", "masks", "history_shots"))
    hidden = predictor(ids, index[:1], masks[:1], shots)
    alone = predictor.output_resampler(hidden[:, FIRST_QUERY : FIRST_QUERY + 6])
    torch.testing.assert_close(shot, alone, atol=1e-5, rtol=1e-4)
    causal = predictor(ids, index[1:], masks[1:], shots)
    torch.testing.assert_close(logits, predictor.head(causal[:, -1]), atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_the_readout_starts_where_it_is_told() -> None:
    predictor, given = tiny(), prompt(history=False)
    shifted = predictor.prefill(**{**given, "readout_start": torch.tensor([FIRST_QUERY + 1])})[0]
    torch.testing.assert_close(predictor.prefill(**given)[0][:, 1:], shifted[:, :-1])


@torch.no_grad()
def test_history_reaches_only_the_rows_that_inject_it() -> None:
    predictor, given = tiny(), prompt(history=True)
    given["history_index"][1] = -1
    before = predictor.prefill(**given)
    given["history_shots"] = given["history_shots"] + 1.0
    after = predictor.prefill(**given)
    assert not torch.allclose(before[0], after[0], atol=1e-4)
    assert torch.equal(before[1], after[1])


@torch.no_grad()
def test_unused_history_shots_change_nothing() -> None:
    predictor, given = tiny(), prompt(history=False)
    before = predictor.prefill(**given)
    given["history_shots"] = torch.randn(4, 6, 12)
    for one, other in zip(before, predictor.prefill(**given), strict=True):
        assert torch.equal(one, other)


@torch.no_grad()
def test_tokens_beyond_the_sliding_window_are_not_seen() -> None:
    predictor = tiny(replace(TINY, layers=1, sliding_window=5))
    given = prompt(history=False)
    _, logits, keys, values = predictor.prefill(**given)
    far, near = given["ids"].clone(), given["ids"].clone()
    far[0, LENGTH - 6] += 1 - 2 * (far[0, LENGTH - 6] == 39).long()
    near[0, LENGTH - 5] += 1 - 2 * (near[0, LENGTH - 5] == 39).long()
    assert torch.equal(logits, predictor.prefill(**{**given, "ids": far})[1])
    assert not torch.equal(logits, predictor.prefill(**{**given, "ids": near})[1])
    extended = predictor.extend(torch.tensor([[7]]), keys, values)[0]
    keys, values = keys.clone(), values.clone()
    keys[:, :, :, : LENGTH - 4], values[:, :, :, : LENGTH - 4] = 9.0, 9.0
    torch.testing.assert_close(extended, predictor.extend(torch.tensor([[7]]), keys, values)[0])


def test_a_batch_trains_every_parameter_and_agrees_with_play() -> None:
    predictor, given = tiny(), prompt(history=True)
    ids = given["ids"].expand(2, -1)
    shots = torch.cat([given["history_shots"], given["history_shots"] * 2])
    index = given["history_index"].clone()
    # The second sample's history is the second shot of the batch.
    index[1, 2:8] += 6
    masks = given["masks"][:1].expand(2, -1, -1)
    with torch.no_grad():
        played = predictor(ids, index, masks, shots)
    trained = predictor.train()(ids, index, masks, shots)
    torch.testing.assert_close(trained, played, atol=1e-5, rtol=1e-4)
    (predictor.output_resampler(trained).square().mean() + predictor.head(trained).square().mean()).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in predictor.parameters())
