"""A game that starts from a picture: the turn 0 it makes, how long it counts, what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_towers import add_towers

import fakes
from animegamer_rt.backends.registry import open_engines, open_towers
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import MotionTokenizer
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import AnimeGamerError, BundleError, ConfigError, InstructionError
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.session import Session
from animegamer_rt.stages.image_start import NEUTRAL, encode_image_start, motion_ids, read_image_start
from animegamer_rt.stages.prompt import HistoryTurn, PromptBuilder
from animegamer_rt.state.game import CharacterState, Instruction
from animegamer_rt.video import write_png

CAPTION = "Character: Mia; Motion: gently wave; Background: day town."


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return add_towers(fakes.write_bundle(tmp_path_factory.mktemp("bundles") / "tiny"))


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pictures") / "start.png"
    write_png(path, np.full((32, 48, 3), 204, np.uint8))
    return path


def opening(bundle: Bundle, image: Path, motion: str = "gently wave") -> HistoryTurn:
    encoder = open_engines(bundle, EngineConfig(threads=1)).encoder
    assert encoder is not None
    towers = open_towers(bundle, EngineConfig(threads=1))
    return encode_image_start(bundle, read_image_start(bundle, 2, image, motion), towers, encoder)[0]


def test_turn_zero_is_the_encoders_shot_of_picture_and_motion(bundle: Bundle, image: Path) -> None:
    turn = opening(bundle, image)
    assert (turn.text, turn.game_state) == ("Motion: gently wave.", NEUTRAL)
    assert turn.shot.shape == (226, 8) and turn.shot.dtype == np.float16
    words = PromptBuilder.from_bundle(bundle).encode_text("gently wave")
    np.testing.assert_allclose(turn.shot[: len(words), 0], np.array(words) / 1000, rtol=1e-3)
    assert (turn.shot[len(words) : 30] == 0).all()
    np.testing.assert_allclose(turn.shot[30:], 204 / 127.5 - 1, rtol=1e-3)


def test_whole_caption_tells_the_prompt_more_and_the_tower_only_the_motion(bundle: Bundle, image: Path) -> None:
    start = read_image_start(bundle, 2, image, f"  {CAPTION} ")
    assert (start.caption, start.motion) == (CAPTION, "gently wave")
    assert (opening(bundle, image, CAPTION).shot == opening(bundle, image).shot).all()
    assert read_image_start(bundle, 2, image, "gently wave.").caption == "Motion: gently wave."


def test_next_turns_continue_from_the_picture_until_it_leaves_the_window(bundle: Bundle, image: Path) -> None:
    predictor = Pipeline.open(bundle, open_engines(bundle, EngineConfig(threads=1))).predictor
    begun, plain = Session.start(bundle, seed=7), Session.start(bundle, seed=7)
    assert begun.history_turns == 2
    begun.start_from(opening(bundle, image))
    shots = []
    for turn in range(1, 4):
        instruction = Instruction(f"Mia waves {turn} times.")
        seen = [past.text for past in begun.history]
        assert seen == ["Motion: gently wave.", *(f"Mia waves {n} times." for n in (1, 2))][max(0, turn - 2) :][:turn]
        shots.append((predictor.predict(begun.history, instruction), predictor.predict(plain.history, instruction)))
        begun.commit(instruction, shots[-1][0])
        plain.commit(instruction, shots[-1][1])
    assert begun.turns == 3
    assert (shots[0][0].shot != shots[0][1].shot).any(), "the first turn sees the picture"
    character = CharacterState()
    for played in begun.log:
        character = character.after(played.game_state)
    assert begun.character == character, "turn 0 moves none of the character's values"
    begun.rewind(0, predictor.predict)
    assert [past.text for past in begun.history] == ["Motion: gently wave."]


def test_text_is_cut_so_that_its_end_stays(bundle: Bundle) -> None:
    words = PromptBuilder.from_bundle(bundle).encode_text("wave " * 40)
    assert motion_ids(bundle, "wave " * 40, 30).tolist() == [words[:30]]
    closed = replace(bundle.manifest, motion_tokenizer=MotionTokenizer(space_first=True, end=2))
    ids = motion_ids(Bundle(bundle.folder, closed), "wave " * 40, 30)
    assert ids.shape == (1, 30) and ids[0, -1] == 2
    short = motion_ids(Bundle(bundle.folder, closed), "wave", 30)[0].tolist()
    assert short[-1] == 0 and 2 in short
    assert short[: short.index(2)] != PromptBuilder.from_bundle(bundle).encode_text("wave"), "a space mark goes first"


def test_bundle_without_the_parts_says_which(tmp_path: Path, image: Path) -> None:
    plain = fakes.write_bundle(tmp_path / "plain")
    with pytest.raises(BundleError, match=r"plain: the bundle cannot start a game.*no text_tower, image_tower, enc"):
        read_image_start(plain, 2, image, "gently wave")
    whole = add_towers(plain)
    parts = {name: part for name, part in whole.manifest.parts.items() if name != "image_tower"}
    with pytest.raises(BundleError, match="found no image_tower; expected text_tower, image_tower, encoder"):
        read_image_start(write_manifest(whole.folder, replace(whole.manifest, parts=parts)), 2, image, "gently wave")


@pytest.mark.parametrize(
    ("motion", "window", "kind", "said"),
    [
        (" ... ", 2, InstructionError, "empty"),
        ("Character: Mia.", 2, InstructionError, "the caption has no motion"),
        ("gently wave", 0, ConfigError, "no turn would see the picture.*--history-turns 1"),
    ],
)
def test_what_cannot_start_a_game_is_refused(
    bundle: Bundle, image: Path, motion: str, window: int, kind: type[AnimeGamerError], said: str
) -> None:
    with pytest.raises(kind, match=said):
        read_image_start(bundle, window, image, motion)
