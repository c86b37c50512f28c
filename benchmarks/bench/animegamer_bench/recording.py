"""A recorded session: its instructions, and how long the player thought before each of them.

Knows the two fields of `game.json` that it reads; nothing of servers. `recorded-game.json` is played where no other is
asked for: an everyday game whose think times, 1.9 to 9.6 s, were chosen by hand, not taken from a person.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from animegamer_rt.bundle.json_file import read_json
from animegamer_rt.errors import ConfigError

OWN = "recorded-game.json"
GAME_FILE = "game.json"


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """What was asked for. think_s: seconds from the end of the turn before, or from the start, until then."""

    instruction: str
    think_s: float


@dataclass(frozen=True, slots=True)
class Recording:
    """A session to play again. name: of its file, without its folders."""

    name: str
    turns: tuple[RecordedTurn, ...]

    @property
    def sha256(self) -> str:
        """Hash of instructions and think times: figures of two recordings are not to be compared."""
        turns = [[turn.instruction, turn.think_s] for turn in self.turns]
        return hashlib.sha256(json.dumps(turns, separators=(",", ":")).encode()).hexdigest()

    def first(self, turns: int) -> Recording:
        """The same without what comes after its first `turns` turns."""
        return Recording(self.name, self.turns[:turns])


def read_recording(path: Path | None = None) -> Recording:
    """The recording of a game folder or its `game.json`; None: the one that comes with this package.

    Raises ConfigError for what is no game, or one of a version of `play` that did not note think times.
    """
    if path is None:
        return _recording(OWN, json.loads(files(__package__).joinpath(OWN).read_text(encoding="utf-8")))
    file = path / GAME_FILE if path.is_dir() else path
    do = "give the folder of a game that was typed into: animegamer-rt play --out FOLDER"
    try:
        return _recording(file.name, read_json(file))
    except (OSError, ValueError) as error:
        raise ConfigError("no recorded game", where=file, found=str(error), do=do) from error
    except (KeyError, TypeError) as error:
        what, expected = "the game has no think times", "turns with instruction and think_s"
        raise ConfigError(what, where=file, found=f"{error}", expected=expected, do=do) from error


def _recording(name: str, game: Mapping[str, Any]) -> Recording:
    turns = [RecordedTurn(turn["instruction"], float(turn["think_s"])) for turn in game["turns"]]
    if not turns or not all(isinstance(turn.instruction, str) and 0 <= turn.think_s < math.inf for turn in turns):
        raise TypeError("no turns" if not turns else "an instruction that is no text, or a time that is none")
    return Recording(name, tuple(turns))
