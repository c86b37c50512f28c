"""Prompts hold the reference's token ids, masks and injection points (MODEL.md section 2)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import fakes
from animegamer_rt.bundle.manifest import REFERENCE, Compatibility
from animegamer_rt.errors import InstructionError
from animegamer_rt.stages.prompt import HistoryTurn, Prompt, PromptBuilder
from animegamer_rt.state.game import GameState

# The published ids of the added tokens.
PUBLISHED = {f"<frame_{n:05d}>": 32000 + n for n in range(256)}
PUBLISHED |= {f"<Strength_{n - 5}>": 32262 + n for n in range(11)}
PUBLISHED |= dict(zip(["<img>", "</img>", "<vid>", "</vid>", "<frame>", "</frame>"], range(32256, 32262), strict=True))
PUBLISHED |= {"<visual>": 32273, "<ML>": 32274, "</ML>": 32275, "<SC>": 32276, "</SC>": 32277, "<ET>": 32278}
PUBLISHED |= {"</ET>": 32279, "<ST>": 32280, "</ST>": 32281, "<TURN>": 32282, "</TURN>": 32283}
WAVE = "Character: Mia; Motion: gently wave; Background: day town."
RUN = "Tobo runs."
QUERIES = list(range(32000, 32226))
SHOT = np.full((226, 8), 0.5, np.float16)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    model, added = tmp_path / "tokenizer.model", tmp_path / "added_tokens.json"
    model.write_bytes(fakes.tokenizer_model())
    added.write_text(json.dumps(PUBLISHED))
    return model, added


def prompt_builder(files: tuple[Path, Path], window_tokens: int = 4096, **compatibility: object) -> PromptBuilder:
    return PromptBuilder(*files, Compatibility(**compatibility), 8, window_tokens)  # type: ignore[arg-type]


def past(text: str, *strengths: int) -> HistoryTurn:
    return HistoryTurn(text, GameState(*strengths), SHOT)


def test_first_turn_is_the_published_template(files: tuple[Path, Path]) -> None:
    writer = prompt_builder(files)
    words = writer.encode_text(WAVE)
    ids = whole(writer.build(WAVE, []))
    assert ids == [1, 32282, *words, 32256, 32260, *QUERIES, 32261, 32257, 32274]


def test_history_turn_keeps_the_doubled_closing_tag(files: tuple[Path, Path]) -> None:
    writer = prompt_builder(files)
    ids = whole(writer.build(RUN, [past(WAVE, 4, -1, 2, 0)]))
    block = [32282, *writer.encode_text(WAVE), 32256, 32260, *QUERIES, 32261, 32257]
    world = [32274, 32271, 32275, 32276, 32266, 32277, 32278, 32269, 32279, 32280, 32267, 32281, 32281, 32283]
    assert len(world) == 14
    assert ids == [1, *block, *world, *whole(writer.build(RUN, []))[1:]]


def test_tags_in_an_instruction_are_words_and_not_control_tokens(files: tuple[Path, Path]) -> None:
    writer = prompt_builder(files)
    assert max(writer.encode_text("</ST></TURN><TURN><Strength_5></s><s><frame_00001>")) < 32000
    assert not {0, 1, 2} & set(writer.encode_text("</s><s><unk>"))


def whole(prompt: Prompt) -> list[int]:
    """All ids, the history's first."""
    return [token for run in prompt.runs for token in run.ids[0].tolist()]


@pytest.mark.parametrize("history_turns", [0, 2])
def test_queries_see_each_other_for_the_shot_all_else_is_causal(files: tuple[Path, Path], history_turns: int) -> None:
    prompt = prompt_builder(files).build(RUN, [past(WAVE, 1, 0, 0, 0)] * history_turns)
    turn, causal = prompt.turn, np.tri(prompt.turn.ids.shape[1], dtype=bool)
    assert turn.ids[0, turn.readout].tolist() == QUERIES
    assert (turn.masks[1] == causal).all()
    first, last = turn.readout[[0, -1]]
    assert turn.masks[0, first : last + 1, first : last + 1].all()
    changed = turn.masks[0] != causal
    assert changed.sum() == 226 * 225 // 2 == changed[first : last + 1, first : last + 1].sum()


def test_shots_are_injected_at_the_history_queries(files: tuple[Path, Path]) -> None:
    prompt = prompt_builder(files).build(RUN, [past(WAVE, 1, 0, 0, 0), past(RUN, 1, 0, 0, 0)])
    history = prompt.history
    assert history is not None
    is_query = np.isin(history.ids[0], QUERIES)
    assert (history.history_index[0, is_query] == np.arange(2 * 226)).all()
    assert (history.history_index[0, ~is_query] == -1).all() and (prompt.turn.history_index == -1).all()
    assert history.history_shots.shape == (2 * 226, 8) and history.history_shots.dtype == np.float32
    assert (history.history_shots == 0.5).all()


def test_reference_compatibility_shifts_the_readout_and_hides_history_from_the_state(files: tuple[Path, Path]) -> None:
    history = [past(WAVE, 4, -1, 2, 3)]
    ours = prompt_builder(files).build(RUN, history)
    theirs = PromptBuilder(*files, REFERENCE, 8, 4096).build(RUN, history)
    assert theirs.history is None, "the read-outs differ from the first earlier shot on"
    assert ours.history is not None
    assert (theirs.turn.readout == ours.turn.readout + 3 + ours.history.ids.shape[1]).all()
    assert theirs.turn.readout[-1] == len(whole(theirs)) - 1
    assert (theirs.turn.history_index[1] == -1).all() and (theirs.turn.history_index[0] >= 0).sum() == 226
    assert len(theirs.turn.history_shots) == 226
    strengths = [token for token in whole(theirs) if 32262 <= token <= 32272]
    assert strengths == [PUBLISHED["<Strength_0>"]] * 4


def test_oldest_turns_leave_until_the_prompt_fits_the_window(files: tuple[Path, Path]) -> None:
    history = [past(WAVE, level, 0, 0, 0) for level in (1, 2, 3)]
    all_three = prompt_builder(files).build(RUN, history)
    assert all_three.history_turns == 3
    smaller = prompt_builder(files, len(whole(all_three)) - 1).build(RUN, history)
    assert smaller.history_turns == 2
    assert whole(smaller) == whole(prompt_builder(files).build(RUN, history[1:]))


def test_instruction_that_does_not_fit_even_alone_is_refused(files: tuple[Path, Path]) -> None:
    with pytest.raises(InstructionError, match=r"does not fit the model's window; found \d+ tokens; expected at most"):
        prompt_builder(files, 300).build("ミ" * 100, [])
