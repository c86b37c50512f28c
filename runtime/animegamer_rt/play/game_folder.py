"""A game on disk: a folder with one clip per turn, a contact sheet, and `game.json`, complete after every turn.

A new game may replace an earlier one in its folder: the files that the earlier game.json lists, once the first new turn
is complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from animegamer_rt.api import Clip
from animegamer_rt.bundle.claims import Claim, claim_folder
from animegamer_rt.bundle.files import make_folder, remove, replace, require_space, write_error, write_file
from animegamer_rt.bundle.json_file import read_json
from animegamer_rt.errors import OutputError
from animegamer_rt.noise import VERSION
from animegamer_rt.stages.image import Picture, read_picture
from animegamer_rt.video import contact_row, contact_rows, write_clip, write_contact_sheet

GAME_FILE = "game.json"
SHEET_FILE = "contact-sheet.png"
SHEET_TURNS = 40
"""Most turns on the contact sheet; a longer game shows its last ones."""
ANOTHER = "choose another folder with --out"
RECORD_FIELDS: Mapping[str, type] = {"bundle": str, "plan": str, "seed": int, "turns": list}
TURN_FIELDS: Mapping[str, type] = {"turn": int, "instruction": str, "state": dict, "frames": int, "frames_sha256": str}
"""Fields, and their types, that identify a game's game.json."""


class GameFolder:
    """The folder of one game.

    The constructor claims the folder and writes the empty game, unless an earlier game is there, which stays until
    `add` has the first turn. Raises OutputError as `check_folder` does.
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
        self._record: dict[str, Any] = {"bundle": bundle, "plan": plan, "seed": seed, "turns": self._turns}
        if start is not None:
            # A file name may contain bytes that are not text.
            self._record["start"] = {
                key: text.encode(errors="backslashreplace").decode() for key, text in start.items()
            }
        self._rows: list[Picture] = []
        self._claim = check_folder(folder)
        self.replaced = self._claim.earlier
        """Whether the folder has an earlier game, which the first turn replaces."""
        if not self.replaced:
            self._write(self.game_path)

    @property
    def game_path(self) -> Path:
        return self.folder / GAME_FILE

    @property
    def sheet_path(self) -> Path:
        """Path of the contact sheet, which exists after the first turn."""
        return self.folder / SHEET_FILE

    @property
    def turns(self) -> int:
        """How many turns are written."""
        return len(self._turns)

    @property
    def files(self) -> list[str]:
        """Names of the game's files."""
        clips = map(clip_name, range(1, len(self._turns) + 1))
        return [GAME_FILE, *clips, *([SHEET_FILE] if self._turns else [])]

    def clip_path(self, turn: int) -> Path:
        return self.folder / clip_name(turn)

    def go_on(self, turns: int) -> None:
        """Keep the first `turns` turns of the earlier game, instead of replacing it. Raises OutputError."""
        record, sheet = read_json(self.game_path), read_picture(self.sheet_path)
        rows = contact_rows(sheet, min(len(record["turns"]), SHEET_TURNS))
        self._rows = rows[: len(rows) - (len(record["turns"]) - turns)]
        self._turns = record["turns"][:turns]
        self._record, self.replaced = {**record, "turns": self._turns}, False
        self._claim = Claim(self.folder, False, frozenset({SHEET_FILE, clip_name(turns + 1)}), ANOTHER)

    def cut(self, turns: int) -> None:
        """Delete the turns after this one, from 0. The contact sheet loses their rows and gets no older ones back."""
        gone = range(turns + 1, len(self._turns) + 1)
        if not gone:
            return
        self._rows = self._rows[: -len(gone)]
        del self._turns[turns:]
        if self._rows:
            write_contact_sheet(self.sheet_path, self._rows)
        self._delete([*map(clip_name, gone), *([] if turns else [SHEET_FILE])])
        self._write(self.game_path)

    def check_next_turn(self) -> None:
        """Raise OutputError if another file is in the place of the next turn's clip or the contact sheet."""
        self._claim.check(clip_name(len(self._turns) + 1))
        if not self._turns:
            self._claim.check(SHEET_FILE)

    def check_free_space(self, frames_bytes: int) -> None:
        """Raise OutputError if a turn with this many bytes of raw frames, which its clip never exceeds, may not fit."""
        do = "free some space, or choose another folder with --out; finished turns are kept"
        require_space(self.folder, frames_bytes, do)

    def add(self, clip: Clip, noise_version: int = VERSION) -> Path:
        """Write a turn's clip, the contact sheet and game.json; returns the clip's path. Raises OutputError.

        All three are written under other names first: a turn that does not fit on the disk changes nothing.
        """
        self.check_next_turn()
        number = len(self._turns) + 1
        frames = np.ascontiguousarray(clip.frames)
        rows = [*self._rows, contact_row(frames)][-SHEET_TURNS:]
        path, staged = self.clip_path(number), {}
        count, height, width, _ = frames.shape
        self._turns.append(
            {
                "turn": number,
                "instruction": clip.instruction,
                **({} if clip.understood is None else {"caption": clip.understood.scene.caption}),
                "state": asdict(clip.state),
                "character": asdict(clip.shown),
                "frames": count,
                "height": height,
                "width": width,
                "fps": self.fps,
                "noise_version": noise_version,
                "seconds": {stage: round(seconds, 4) for stage, seconds in clip.seconds.to_fields().items()},
                "frames_sha256": hashlib.sha256(frames.tobytes()).hexdigest(),
            }
        )
        try:
            staged[path] = self._stage(path, lambda part: write_clip(part, frames, self.fps, self.scale))
            staged[self.sheet_path] = self._stage(self.sheet_path, lambda part: write_contact_sheet(part, rows))
            staged[self.game_path] = self._stage(self.game_path, self._write)
            if self._claim.earlier:
                self._delete_earlier()
            for final, part in staged.items():
                try:
                    replace(part, final)
                except OSError as error:
                    raise write_error(final, error) from error
        except BaseException:
            self._turns.pop()
            raise
        finally:
            for part in staged.values():
                remove(part)
        self._rows = rows
        return path

    def _stage(self, path: Path, write: Callable[[Path], None]) -> Path:
        part = path.with_name(f".new-{path.name}")
        try:
            write(part)
        except OutputError as error:  # reported under the final name
            raise OutputError(error.what, where=path, found=error.found, do=error.do) from error
        return part

    def _delete_earlier(self) -> None:
        """Delete the earlier game's files, its record last."""
        self._delete(sorted(self._claim.listed, key=lambda name: name == GAME_FILE))
        # From now on the folder's files are this game's own.
        self._claim = Claim(self.folder, False, frozenset({SHEET_FILE}), ANOTHER)

    def _delete(self, names: Iterable[str]) -> None:
        for path in map(self.folder.joinpath, names):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise write_error(path, error) from error

    def _write(self, path: Path) -> None:
        write_file(path, (json.dumps(self._record, indent=2, ensure_ascii=False) + "\n").encode())


def clip_name(turn: int) -> str:
    """File name of a turn's clip; turns count from 1."""
    return f"turn-{turn:03d}.mp4"


def next_folder(parent: Path) -> Path:
    """The first of `game-001`, `game-002`, .. under `parent` that does not exist yet."""
    number = 1
    while os.path.lexists(parent / f"game-{number:03d}"):
        number += 1
    return parent / f"game-{number:03d}"


def new_folder(parent: Path) -> Path:
    """Create the folder named by `next_folder`, which no other process gets too. Raises OutputError."""
    make_folder(parent)
    while True:
        folder = next_folder(parent)
        try:
            folder.mkdir()
        except FileExistsError:  # another process was faster
            continue
        except OSError as error:
            raise write_error(folder, error) from error
        return folder


def check_folder(folder: Path) -> Claim:
    """Create the folder and check that a game may be written there.

    Raises OutputError if the folder cannot be written, has other files, or a game.json that is not a game's.
    """
    claim = claim_folder(folder, "a game", _listed, do=ANOTHER)
    claim.check(clip_name(1))
    claim.check(SHEET_FILE)
    return claim


def _listed(folder: Path) -> frozenset[str] | None:
    """The files of the game in a folder; None if there is no game.json. Raises OutputError if it is not a game's."""
    path = folder / GAME_FILE
    if not os.path.lexists(path):
        return None
    try:
        record = read_json(path)
    except (OSError, ValueError):
        record = None
    if not _is_game(record):
        raise OutputError(f"the folder's {GAME_FILE} is not a game's", where=folder, do=f"move it, or {ANOTHER}")
    turns = range(1, len(record["turns"]) + 1)
    return frozenset({GAME_FILE, *map(clip_name, turns), *([SHEET_FILE] if turns else [])})


def _is_game(record: Any) -> bool:
    """Whether this looks like a game's record, with every turn's number and the hash of its frames."""
    return _has(record, RECORD_FIELDS) and all(
        _has(turn, TURN_FIELDS) and turn["turn"] == number and re.fullmatch("[0-9a-f]{64}", turn["frames_sha256"])
        for number, turn in enumerate(record["turns"], 1)
    )


def _has(record: Any, fields: Mapping[str, type]) -> bool:
    return isinstance(record, dict) and all(type(record.get(name)) is kind for name, kind in fields.items())
