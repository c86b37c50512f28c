"""A saved game goes on exactly; a damaged or foreign one is refused and named."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

import fakes
from animegamer_rt import savegame
from animegamer_rt.bundle import Bundle, write_manifest
from animegamer_rt.errors import OutputError, SessionError
from animegamer_rt.events import FrameReady
from animegamer_rt.pipeline import Rooms, open_rooms, run_turn
from animegamer_rt.session import Session
from animegamer_rt.state import Instruction


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return fakes.write_bundle(tmp_path / "tiny")


@pytest.fixture
def rooms(bundle: Bundle) -> Rooms:
    return open_rooms(bundle, fakes.fake_engines())


def play(rooms: Rooms, session: Session, text: str = "Mia waves.") -> np.ndarray:
    events = run_turn(rooms, session, Instruction(text))
    return np.stack([event.frame for event in events if isinstance(event, FrameReady)])


def saved(rooms: Rooms, folder: Path, turns: int = 3) -> Session:
    session = Session.start(rooms.bundle, 7)
    for _ in range(turns):
        play(rooms, session)
    savegame.save(session, folder)
    return session


@pytest.mark.parametrize("turns", [0, 1, 3])
def test_resumed_game_goes_on_to_the_same_bytes(rooms: Rooms, tmp_path: Path, turns: int) -> None:
    session = saved(rooms, tmp_path / "game", turns)
    resumed = savegame.resume(tmp_path / "game", rooms.bundle)
    assert (resumed.id, resumed.log, resumed.character) == (session.id, session.log, session.character)
    for text in ("Tobo runs.", "Mia flies."):
        assert (play(rooms, resumed, text) == play(rooms, session, text)).all()


def test_saving_again_leaves_one_game_in_the_folder(rooms: Rooms, tmp_path: Path) -> None:
    session = saved(rooms, tmp_path / "game", 1)
    play(rooms, session)
    savegame.save(session, tmp_path / "game")
    assert sorted(path.name for path in (tmp_path / "game").iterdir()) == ["session.json", "shots-0002.npz"]
    assert savegame.resume(tmp_path / "game", rooms.bundle).turns == 2


def test_crash_while_saving_leaves_the_game_as_last_saved(
    rooms: Rooms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = saved(rooms, tmp_path / "game", 1)
    play(rooms, session)
    replace = os.replace

    def full(source: object, target: Path) -> None:
        if Path(target).name == "session.json":
            raise OSError(28, "No space left on device")
        replace(source, target)  # type: ignore[call-overload]

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OutputError, match="cannot be saved; found No space left on device"):
        savegame.save(session, tmp_path / "game")
    assert savegame.resume(tmp_path / "game", rooms.bundle).turns == 1


def test_missing_game_is_named(bundle: Bundle, tmp_path: Path) -> None:
    with pytest.raises(SessionError, match=r"session\.json: no saved game here"):
        savegame.resume(tmp_path, bundle)


def test_game_of_another_bundle_is_refused(rooms: Rooms, tmp_path: Path) -> None:
    saved(rooms, tmp_path / "game")
    added = rooms.bundle.folder / "added_tokens.json"
    added.write_text(added.read_text() + "\n")
    other = write_manifest(rooms.bundle.folder, rooms.bundle.manifest)
    with pytest.raises(SessionError, match="played with another bundle"):
        savegame.resume(tmp_path / "game", other)


@pytest.mark.parametrize(
    "change", [{"format_version": 99}, {"seed": "x"}, {"turns": [{"text": "a"}]}, {"extra": 1}, {"shots_file": "gone"}]
)
def test_damaged_game_is_refused(rooms: Rooms, tmp_path: Path, change: dict[str, object]) -> None:
    saved(rooms, tmp_path / "game")
    path = tmp_path / "game" / "session.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(SessionError):
        savegame.resume(tmp_path / "game", rooms.bundle)


def test_flipped_bit_in_the_shots_is_found(rooms: Rooms, tmp_path: Path) -> None:
    saved(rooms, tmp_path / "game")
    path = next((tmp_path / "game").glob("*.npz"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(SessionError, match="shots are missing or damaged"):
        savegame.resume(tmp_path / "game", rooms.bundle)


def test_folder_that_cannot_be_written_is_named(rooms: Rooms, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(OutputError, match="the game cannot be saved"):
        saved(rooms, tmp_path / "file" / "game")


def test_game_whose_first_turns_were_left_out_is_not_saved_as_another(rooms: Rooms, tmp_path: Path) -> None:
    session = Session.start(rooms.bundle, 7)
    session.first = 2
    with pytest.raises(SessionError, match="first turns were left out"):
        savegame.save(session, tmp_path / "game")
    assert not (tmp_path / "game").exists()
