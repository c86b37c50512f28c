"""The folder of a game: game.json is whole and true after every turn, and room is looked for before the work."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from animegamer_rt.api import Clip
from animegamer_rt.errors import OutputError
from animegamer_rt.events import StageSeconds
from animegamer_rt.play.game_folder import GameFolder, next_folder
from animegamer_rt.state.game import CharacterState, GameState

FRAMES = np.broadcast_to(np.arange(17, dtype=np.uint8)[:, None, None, None] * 12, (17, 96, 144, 3))
TURN = Clip(
    turn=1,
    instruction="Mia waves ☀",
    frames=FRAMES,
    fps=8,
    state=GameState(motion_level=2, social=1, entertainment=0, stamina=-1),
    character=CharacterState(stamina=45, social=55, entertainment=50),
    shown=CharacterState(stamina=45, social=55, entertainment=45),
    seconds=StageSeconds(predictor=0.1, denoiser=1.25, vae=0.4, total=1.75),
)


def game(folder: Path) -> GameFolder:
    return GameFolder(folder, bundle="pocket", plan="balanced", seed=7, fps=8)


def test_record_of_a_turn_is_what_was_agreed(tmp_path: Path) -> None:
    folder = game(tmp_path / "a" / "game")
    folder.add(TURN)
    assert json.loads(folder.game_path.read_text(encoding="utf-8")) == {
        "bundle": "pocket",
        "plan": "balanced",
        "seed": 7,
        "turns": [
            {
                "turn": 1,
                "instruction": "Mia waves ☀",
                "state": {"motion_level": 2, "social": 1, "entertainment": 0, "stamina": -1},
                "character": {"stamina": 45, "social": 55, "entertainment": 45},
                "frames": 17,
                "height": 96,
                "width": 144,
                "fps": 8,
                "seconds": {"predictor": 0.1, "denoiser": 1.25, "vae": 0.4, "total": 1.75},
                "frames_sha256": hashlib.sha256(FRAMES.tobytes()).hexdigest(),
            }
        ],
    }


def test_a_new_game_replaces_the_one_in_its_folder_and_nothing_else(tmp_path: Path) -> None:
    first = game(tmp_path)
    first.add(TURN)
    first.add(TURN)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "turn-009.mp4").write_text("mine too")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    second = game(tmp_path)
    assert second.replaced
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before, "no turn of it is whole yet"
    second.add(TURN)
    kept = {"notes.txt", "turn-009.mp4"}
    assert {path.name for path in tmp_path.iterdir()} == {"game.json", "turn-001.mp4", "contact-sheet.png", *kept}


@pytest.mark.parametrize("content", ['{"turns": 5}', "no JSON"])
def test_a_file_of_that_name_that_is_no_games_is_left_alone(tmp_path: Path, content: str) -> None:
    (tmp_path / "game.json").write_text(content)
    with pytest.raises(
        OutputError, match=r"the folder holds a game\.json that is not a game's; .*another folder with --out"
    ):
        game(tmp_path)
    assert [path.read_text() for path in tmp_path.iterdir()] == [content]


def test_next_folder_is_the_first_free_number(tmp_path: Path) -> None:
    assert next_folder(tmp_path).name == "game-001"
    (tmp_path / "game-001").mkdir()
    assert next_folder(tmp_path).name == "game-002"
