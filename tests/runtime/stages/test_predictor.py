"""The game state is chosen, never parsed: no logits can bring out an impossible one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import fakes
from animegamer_rt.stages.predictor import Predictor
from animegamer_rt.stages.prompt import HistoryTurn, PromptBuilder
from animegamer_rt.state.game import STRENGTH_VALUES, STRENGTHS, GameState, Instruction

WAVE = Instruction("Mia waves.")


@pytest.fixture
def prompt_builder(tmp_path: Path) -> PromptBuilder:
    return PromptBuilder.from_bundle(fakes.write_bundle(tmp_path / "tiny"))


def test_each_further_choice_is_fed_strength_and_fixed_tokens(prompt_builder: PromptBuilder, tmp_path: Path) -> None:
    part = fakes.FakePredictor(strengths=(5, -3, 0, 2))
    Predictor(part, prompt_builder).predict([], WAVE)
    added = json.loads((tmp_path / "tiny" / "added_tokens.json").read_text())
    names = {token: name for name, token in added.items()}
    fed = [[names.get(token) for token in tokens] for tokens in part.extended]
    assert len(part.read) == 1, "one run serves both read-outs"
    assert [tokens[1:] for tokens in fed] == [["</ML>", "<SC>"], ["</SC>", "<ET>"], ["</ET>", "<ST>"]]
    assert [tokens[0] for tokens in fed] == ["<Strength_5>", "<Strength_-3>", "<Strength_0>"]


def test_adversarial_logits_cannot_bring_out_an_impossible_state(prompt_builder: PromptBuilder) -> None:
    random = np.random.default_rng(0)

    def adversarial(slot: int) -> np.ndarray:
        logits = random.normal(size=fakes.vocabulary()).astype(np.float32) * 1e6
        logits[random.integers(fakes.vocabulary())] = np.inf if slot % 2 else 1e38
        logits[list(prompt_builder.strength_ids)] = -1e30 + random.normal(size=11) * 1e24
        return logits

    predictor = Predictor(fakes.FakePredictor(answer=adversarial), prompt_builder)
    for _ in range(50):
        game_state = predictor.predict([], WAVE).game_state
        assert all(getattr(game_state, name) in STRENGTH_VALUES for name in STRENGTHS)


def test_history_is_read_apart_and_says_nothing_of_the_instruction(prompt_builder: PromptBuilder) -> None:
    part = fakes.FakePredictor()
    history = [HistoryTurn("Tobo runs.", GameState(1, 0, 0, 0), np.ones((226, 8), np.float16))]
    for text in ("Mia waves.", "Tobo flies on a kite."):
        Predictor(part, prompt_builder).predict(history, Instruction(text))
    assert len(part.read) == 4
    for field in ("ids", "history_index", "history_shots", "masks"):
        assert np.array_equal(getattr(part.read[0], field), getattr(part.read[2], field))
    assert part.read[1].ids.shape != part.read[3].ids.shape


def test_prepared_history_is_read_once_and_changes_nothing(prompt_builder: PromptBuilder) -> None:
    history = [HistoryTurn("Tobo runs.", GameState(1, 0, 0, 0), np.ones((226, 8), np.float16))]
    other = [HistoryTurn("Tobo runs.", GameState(1, 0, 0, 0), np.zeros((226, 8), np.float16))]
    expected = Predictor(fakes.FakePredictor(), prompt_builder).predict(history, WAVE)
    for prepared, runs in ((history, 2), (other, 3), ([], 2)):
        part = fakes.FakePredictor()
        predictor = Predictor(part, prompt_builder)
        predictor.prepare(prepared)
        predictor.prepare(prepared)
        found = predictor.predict(history, WAVE)
        assert (found.shot == expected.shot).all() and found.game_state == expected.game_state
        assert len(part.read) == runs
        predictor.predict(history, WAVE)
        assert len(part.read) == runs + 2, "what was prepared serves one prediction"
