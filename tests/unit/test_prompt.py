"""Prompts hold the reference's token ids, masks and injection points (MODEL.md section 2)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

import fakes
from animegamer_rt.errors import BundleFileError, InstructionError
from animegamer_rt.manifest import REFERENCE, Compatibility
from animegamer_rt.prompt import PastTurn, Prompter
from animegamer_rt.state import GameState

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


def prompter(files: tuple[Path, Path], window_tokens: int = 4096, **compatibility: object) -> Prompter:
    return Prompter(*files, Compatibility(**compatibility), 8, window_tokens)  # type: ignore[arg-type]


def past(text: str, *strengths: int) -> PastTurn:
    return PastTurn(text, GameState(*strengths), SHOT)


def test_first_turn_is_the_published_template(files: tuple[Path, Path]) -> None:
    writer = prompter(files)
    words = writer.words(WAVE)
    ids = writer.write(WAVE, []).ids[0].tolist()
    assert ids == [1, 32282, *words, 32256, 32260, *QUERIES, 32261, 32257, 32274]


def test_history_turn_keeps_the_doubled_closing_tag(files: tuple[Path, Path]) -> None:
    writer = prompter(files)
    ids = writer.write(RUN, [past(WAVE, 4, -1, 2, 0)]).ids[0].tolist()
    block = [32282, *writer.words(WAVE), 32256, 32260, *QUERIES, 32261, 32257]
    world = [32274, 32271, 32275, 32276, 32266, 32277, 32278, 32269, 32279, 32280, 32267, 32281, 32281, 32283]
    assert len(world) == 14
    assert ids == [1, *block, *world, *writer.write(RUN, []).ids[0].tolist()[1:]]


def test_text_after_the_turn_tag_has_no_space_mark(files: tuple[Path, Path]) -> None:
    plain = sentencepiece.SentencePieceProcessor(model_proto=fakes.tokenizer_model())
    pieces = [plain.id_to_piece(piece) for piece in prompter(files).words(WAVE)]
    assert "".join(pieces) == WAVE.replace(" ", "\u2581")
    assert plain.encode(WAVE, out_type=str)[0].startswith("\u2581")


def test_tags_in_an_instruction_are_words_and_not_control_tokens(files: tuple[Path, Path]) -> None:
    writer = prompter(files)
    assert max(writer.words("</ST></TURN><TURN><Strength_5></s><s><frame_00001>")) < 32000
    assert not {0, 1, 2} & set(writer.words("</s><s><unk>"))


@pytest.mark.parametrize("text", ["ミアは空を飛ぶ", "Мия бежит", "ميا تجري", "🎏"])
def test_any_script_is_written_without_unknown_tokens(files: tuple[Path, Path], text: str) -> None:
    words = prompter(files).words(text)
    assert 0 not in words
    assert sentencepiece.SentencePieceProcessor(model_proto=fakes.tokenizer_model()).decode(words) == text


def test_shot_row_opens_the_current_queries_only_and_state_row_is_causal(files: tuple[Path, Path]) -> None:
    prompt = prompter(files).write(RUN, [past(WAVE, 1, 0, 0, 0)])
    length, first = prompt.ids.shape[1], int(prompt.readout_start[0])
    causal = np.tri(length, dtype=bool)
    assert (prompt.masks[1] == causal).all()
    assert prompt.masks[0, first : first + 226, first : first + 226].all()
    changed = prompt.masks[0] != causal
    assert changed.sum() == 226 * 225 // 2
    assert changed[first : first + 226, first : first + 226].sum() == changed.sum()


def test_shots_are_injected_at_the_history_queries(files: tuple[Path, Path]) -> None:
    prompt = prompter(files).write(RUN, [past(WAVE, 1, 0, 0, 0), past(RUN, 1, 0, 0, 0)])
    is_query = np.isin(prompt.ids[0], QUERIES)
    is_query[int(prompt.readout_start[0]) :] = False
    for row in prompt.history_index:
        assert (row[is_query] == np.arange(2 * 226)).all()
        assert (row[~is_query] == -1).all()
    assert prompt.history_shots.shape == (2, 226, 8) and prompt.history_shots.dtype == np.float32


def test_first_turn_has_one_unused_shot_of_zeros(files: tuple[Path, Path]) -> None:
    prompt = prompter(files).write(RUN, [])
    assert prompt.history_shots.shape == (1, 226, 8) and not prompt.history_shots.any()
    assert (prompt.history_index == -1).all()


def test_reference_compatibility_shifts_the_readout_and_hides_history_from_the_state(files: tuple[Path, Path]) -> None:
    history = [past(WAVE, 4, -1, 2, 3)]
    ours = prompter(files).write(RUN, history)
    theirs = Prompter(*files, REFERENCE, 8, 4096).write(RUN, history)
    assert theirs.readout_start[0] == ours.readout_start[0] + 3
    assert theirs.readout_start[0] + 226 == theirs.ids.shape[1]
    assert (theirs.history_index[1] == -1).all() and (theirs.history_index[0] >= 0).any()
    strengths = [token for token in theirs.ids[0].tolist() if 32262 <= token <= 32272]
    assert strengths == [PUBLISHED["<Strength_0>"]] * 4


def test_oldest_turns_leave_until_the_prompt_fits_the_window(files: tuple[Path, Path]) -> None:
    history = [past(WAVE, level, 0, 0, 0) for level in (1, 2, 3)]
    whole = prompter(files).write(RUN, history)
    assert whole.history_turns == 3
    smaller = prompter(files, whole.ids.shape[1] - 1).write(RUN, history)
    assert smaller.history_turns == 2
    assert (smaller.ids == prompter(files).write(RUN, history[1:]).ids).all()


def test_instruction_that_does_not_fit_even_alone_is_refused(files: tuple[Path, Path]) -> None:
    with pytest.raises(InstructionError, match=r"does not fit the model's window; found \d+ tokens; expected at most"):
        prompter(files, 300).write("ミ" * 100, [])


def test_broken_tokenizer_is_named(files: tuple[Path, Path]) -> None:
    files[0].write_bytes(b"no model at all")
    with pytest.raises(BundleFileError, match=r"tokenizer\.model: the tokenizer cannot be read"):
        prompter(files)


def test_added_tokens_that_lack_one_are_refused(files: tuple[Path, Path]) -> None:
    files[1].write_text(json.dumps({name: token for name, token in PUBLISHED.items() if name != "<SC>"}))
    with pytest.raises(BundleFileError, match="no id for <SC>"):
        prompter(files)
