"""A game on disk: a folder with one clip a turn, a contact sheet, and `game.json`, complete after every turn.

Knows files and records; it plays no turn.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from animegamer_rt.bundle.files import make_folder, write_error, write_file
from animegamer_rt.errors import OutputError
from animegamer_rt.events import StageSeconds
from animegamer_rt.stages.image import Picture
from animegamer_rt.state.game import CharacterState, GameState
from animegamer_rt.state.game_fields import character_to_fields, game_state_to_fields
from animegamer_rt.video import Frames, contact_row, write_clip, write_contact_sheet

GAME_FILE = "game.json"
SHEET_FILE = "contact-sheet.png"
SHEET_TURNS = 40
"""Most turns on the contact sheet; a longer game shows its last ones."""
MARGIN_BYTES = 8 * 2**20
"""Free space to require beyond the size of a turn's raw frames, which its clip never exceeds."""


@dataclass(frozen=True, slots=True)
class FinishedTurn:
    """One turn as it is written. `character`: the values to display; `frames`: uint8 [T, H, W, 3].

    `caption`: what a reader made of the instruction; None for a bundle without one.
    """

    instruction: str
    state: GameState
    character: CharacterState
    seconds: StageSeconds
    frames: Frames
    caption: str | None = None


class GameFolder:
    """The folder of one game.

    The constructor writes the empty game, replacing an earlier one, and raises OutputError as `check_folder` does.
    `start`: name and caption of the picture that the game started from.
    """

    def __init__(
        self,
        folder: Path,
        bundle: str,
        plan: str,
        seed: int,
        fps: float,
        scale: int | None = None,
        start: Mapping[str, str] | None = None,
    ) -> None:
        self.folder, self.fps, self.scale = folder, fps, scale
        self._turns: list[dict[str, object]] = []
        self._record = {"bundle": bundle, "plan": plan, "seed": seed, "turns": self._turns}
        if start is not None:
            self._record["start"] = dict(start)
        self._rows: list[Picture] = []
        earlier = check_folder(folder)
        self.replaced = earlier is not None
        if earlier is not None:
            for path in (*map(self.clip_path, range(1, earlier + 1)), self.sheet_path):
                path.unlink(missing_ok=True)
        self._write()

    @property
    def game_path(self) -> Path:
        """Path of `game.json`."""
        return self.folder / GAME_FILE

    @property
    def sheet_path(self) -> Path:
        """Path of the contact sheet, which exists after the first turn."""
        return self.folder / SHEET_FILE

    def clip_path(self, turn: int) -> Path:
        """Path of a turn's clip; turns count from 1."""
        return self.folder / f"turn-{turn:03d}.mp4"

    def check_free_space(self, frames_bytes: int) -> None:
        """Raise OutputError if a turn with this many bytes of raw frames may not fit on the disk."""
        try:
            free = shutil.disk_usage(self.folder).free
        except OSError as error:
            raise write_error(self.folder, error) from error
        needed = frames_bytes + MARGIN_BYTES
        if free < needed:
            raise OutputError(
                "too little free space for another turn",
                where=self.folder,
                found=f"{free / 2**20:.0f} MiB free",
                expected=f"{needed / 2**20:.0f} MiB",
                do="free some space, or choose another folder with --out; finished turns are kept",
            )

    def add(self, turn: FinishedTurn) -> Path:
        """Write the clip, then the contact sheet, then game.json; returns the clip's path. Raises OutputError."""
        number = len(self._turns) + 1
        frames = np.ascontiguousarray(turn.frames)
        path = self.clip_path(number)
        write_clip(path, frames, self.fps, self.scale)
        self._rows = [*self._rows, contact_row(frames)][-SHEET_TURNS:]
        write_contact_sheet(self.sheet_path, self._rows)
        count, height, width, _ = frames.shape
        self._turns.append(
            {
                "turn": number,
                "instruction": turn.instruction,
                **({} if turn.caption is None else {"caption": turn.caption}),
                "state": game_state_to_fields(turn.state),
                "character": character_to_fields(turn.character),
                "frames": count,
                "height": height,
                "width": width,
                "fps": self.fps,
                "seconds": {stage: round(seconds, 4) for stage, seconds in turn.seconds.to_fields().items()},
                "frames_sha256": hashlib.sha256(frames.tobytes()).hexdigest(),
            }
        )
        self._write()
        return path

    def _write(self) -> None:
        write_file(self.game_path, (json.dumps(self._record, indent=2, ensure_ascii=False) + "\n").encode())


def next_folder(parent: Path) -> Path:
    """The first of `game-001`, `game-002`, .. under `parent` that does not exist yet."""
    number = 1
    while (parent / f"game-{number:03d}").exists():
        number += 1
    return parent / f"game-{number:03d}"


def check_folder(folder: Path) -> int | None:
    """Make the folder and check that a game may be written there; returns the number of turns of a game in it, or None.

    Raises OutputError if the folder cannot be written, or holds a game.json that is not a game's.
    """
    make_folder(folder)
    path = folder / GAME_FILE
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        record = None
    turns = record.get("turns") if isinstance(record, dict) else None
    if not isinstance(turns, list):
        raise OutputError(
            f"the folder holds a {GAME_FILE} that is not a game's",
            where=folder,
            do="move it, or choose another folder with --out",
        )
    return len(turns)
