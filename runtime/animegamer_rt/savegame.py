"""Saves a session to a folder and resumes it: `session.json` and the kept shots beside it as npz.

Knows files and sessions; nothing of engines. The json is written last and names its npz with a hash, so a crash at any
moment leaves the game as last saved.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .bundle import Bundle, sha256
from .config import read_record, write_record
from .errors import ConfigError, OutputError, SessionError
from .session import PlayedTurn, Session
from .state import CharacterState

FILE = "session.json"
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class SavedGame:
    """What `session.json` holds."""

    format_version: int
    id: str
    bundle_name: str
    bundle_fingerprint: str
    seed: int
    history_turns: int
    turns: tuple[PlayedTurn, ...]
    shots_file: str
    shots_sha256: str


def save(session: Session, folder: str | Path) -> Path:
    """Writes the session and returns the json's path.

    Raises OutputError when the folder cannot be written, SessionError for a session that was resumed without its first
    turns.
    """
    folder = Path(folder)
    if session.first:
        raise SessionError("a game whose first turns were left out cannot be saved", found=f"{session.first} left out")
    shots_file = f"shots-{session.turns:04d}.npz"
    packed = io.BytesIO()
    arrays: dict[str, Any] = {str(number): shot for number, shot in session.shots.items()}
    np.savez(packed, **arrays)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / shots_file, packed.getvalue())
        saved = SavedGame(
            FORMAT_VERSION,
            session.id,
            session.bundle_name,
            session.bundle_fingerprint,
            session.seed,
            session.history_turns,
            session.log,
            shots_file,
            sha256(folder / shots_file),
        )
        _write(folder / FILE, json.dumps(write_record(saved), indent=1, ensure_ascii=False).encode())
        for older in folder.glob("shots-*.npz"):
            if older.name != shots_file:
                older.unlink()
    except OSError as error:
        raise OutputError("the game cannot be saved", where=folder, found=error.strerror or str(error)) from error
    return folder / FILE


def resume(folder: str | Path, bundle: Bundle) -> Session:
    """The session saved in `folder`, to go on with exactly as if it had never stopped.

    Raises SessionError when it is missing, damaged, of a newer format, or was played with another bundle.
    """
    path = Path(folder) / FILE
    saved = _read(path)
    if saved.bundle_fingerprint != bundle.fingerprint:
        raise SessionError(
            "the game was played with another bundle",
            where=path,
            found=f"{saved.bundle_name} ({saved.bundle_fingerprint})",
            expected=f"{bundle.manifest.name} ({bundle.fingerprint})",
            do="open it with the bundle it was played with",
        )
    shots_path = path.parent / Path(saved.shots_file).name
    if not shots_path.is_file() or sha256(shots_path) != saved.shots_sha256:
        raise SessionError("the game's shots are missing or damaged", where=shots_path, do="start a new game")
    character = CharacterState()
    for turn in saved.turns:
        character = character.after(turn.game_state)
    with np.load(shots_path, allow_pickle=False) as packed:
        shots = {int(number): packed[number] for number in packed.files}
    return Session(
        saved.bundle_name,
        saved.bundle_fingerprint,
        saved.seed,
        saved.history_turns,
        saved.id,
        saved.turns,
        character,
        shots,
    )


def _read(path: Path) -> SavedGame:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        version = data.get("format_version") if isinstance(data, dict) else None
        if version != FORMAT_VERSION:
            raise SessionError(
                "the saved game's format is not known", where=path, found=version, expected=FORMAT_VERSION
            )
        return read_record(SavedGame, data, str(path))
    except OSError as error:
        raise SessionError("no saved game here", where=path, found=error.strerror) from error
    except (ValueError, ConfigError, zipfile.BadZipFile) as error:
        raise SessionError("the saved game is damaged", where=path, found=str(error)) from error


def _write(path: Path, content: bytes) -> None:
    partial = path.with_name(path.name + ".part")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
