"""The folder of a game: game.json is whole and true after every turn, and room is looked for before the work."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from animegamer_rt.api import Clip
from animegamer_rt.events import StageSeconds
from animegamer_rt.play.game_folder import GameFolder
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
