"""The store's file: one server has it, a newer one is left alone, and what cannot be written is said, not lost."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_store import game, play

from animegamer_rt.errors import StoreError
from animegamer_rt.serving.store import database
from animegamer_rt.serving.store.database import Quota
from animegamer_rt.serving.store.errors import StoreFullError
from animegamer_rt.serving.store.schema import SCHEMA_VERSION, SCRIPTS
from animegamer_rt.serving.store.store import FILE, Store
from animegamer_rt.serving.store.turns import StoredTurn
from animegamer_rt.state.game import CharacterState, GameState


def content(folder: Path) -> dict[str, bytes]:
    """The files of a folder and what is in them."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_a_newer_schema_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        session, _ = game(store)
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as newer, newer:
        newer.execute("UPDATE store SET schema_version = 99")
        newer.execute("CREATE TABLE inventions (what TEXT)")
    before = content(tmp_path)
    with pytest.raises(StoreError, match="newer version.*found schema version 99; expected at most.*update") as error:
        Store(tmp_path)
    assert error.value.code == "storage"
    assert content(tmp_path) == before
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as newer, newer:
        newer.execute("UPDATE store SET schema_version = ?", [SCHEMA_VERSION])
        newer.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="would misread.*found meaning 99; expected at most.*nothing was changed"):
        Store(tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as newer, newer:
        newer.execute("PRAGMA user_version = 0")  # as older versions leave it
    with Store(tmp_path) as store:
        assert store.get(session.id).turns == 0


def test_an_older_schema_is_brought_up_to_date_or_left_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(tmp_path) as store:
        session, _ = game(store)
        play(store, session.id, ["a"])
    add, fail = "ALTER TABLE sessions ADD COLUMN note TEXT", "INSERT INTO nowhere VALUES (1)"
    monkeypatch.setattr(database, "SCHEMA_VERSION", SCHEMA_VERSION + 1)
    monkeypatch.setattr(database, "SCRIPTS", (*SCRIPTS, (add, fail)))
    with pytest.raises(StoreError, match="no such table: nowhere"):
        Store(tmp_path)
    monkeypatch.setattr(database, "SCRIPTS", (*SCRIPTS, (add,)))
    for _ in range(2):
        with Store(tmp_path) as store:
            assert store.database.rows("SELECT schema_version FROM store") == [(SCHEMA_VERSION + 1,)]
            assert store.database.rows("SELECT note FROM sessions") == [(None,)]
            assert [turn.instruction for turn in store.turns(session.id, 1, 9)] == ["a"]


def test_what_is_no_folder_is_called_so(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.touch()
    link.symlink_to(tmp_path / "nowhere")
    for place, found in ((file, "a file"), (link, "a link to .*nowhere, which is no folder")):
        with pytest.raises(StoreError, match=f"{place.name}: not a state folder; found {found}; remove it, or"):
            Store(place)


@pytest.mark.parametrize("case", ["text", "someone else's tables", "cut short"])
def test_a_file_that_is_not_ours_is_refused_and_left_as_it_is(tmp_path: Path, case: str) -> None:
    path = tmp_path / FILE
    if case == "text":
        path.write_bytes(b"dear diary, " * 1000)
    elif case == "cut short":
        with Store(tmp_path) as store:
            session, _ = game(store)
            play(store, session.id, ["a"] * 40)
        path.write_bytes(path.read_bytes()[: 3 * 4096])
    else:
        with contextlib.closing(sqlite3.connect(path)) as foreign, foreign:
            foreign.execute("CREATE TABLE recipes (name TEXT)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"sessions\.sqlite: .*(not a file of sessions|damaged).*move"):
        Store(tmp_path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", [FILE, f"{FILE}-wal"])
@pytest.mark.parametrize("fate", ["deleted", "replaced by a copy"])
def test_no_turn_counts_once_the_file_has_lost_its_name(tmp_path: Path, name: str, fate: str) -> None:
    path, kept = tmp_path / name, tmp_path / "kept"
    with Store(tmp_path) as store:
        session, token = game(store)
        play(store, session.id, ["a"])
        path.rename(kept)
        if fate != "deleted":
            shutil.copyfile(kept, path)
        found = "No such file" if fate == "deleted" else "another file"
        with pytest.raises(StoreError, match=f"{name}: the sessions were deleted, moved, replaced.*{found}.*restore"):
            play(store, session.id, ["b"])
        with pytest.raises(StoreError, match="were deleted, moved, replaced"):
            game(store)
        kept.replace(path)
        play(store, session.id, ["b"])
    with Store(tmp_path) as store:
        assert store.resume(token).turns == 2


def test_no_turn_counts_once_the_file_was_cut_short(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        session, _ = game(store)
        play(store, session.id, ["a"] * 40)
    with Store(tmp_path) as store:
        play(store, session.id, ["b"])
        os.truncate(tmp_path / FILE, 0)
        for _ in range(2):
            with pytest.raises(StoreError, match=rf"{FILE}: .*truncated while the server was running.* 0 now"):
                play(store, session.id, ["c"])


@pytest.mark.parametrize("case", ["a folder", "a pipe", "a path too long for SQLite"])
def test_what_sqlite_cannot_open_is_said(tmp_path: Path, case: str) -> None:
    folder = tmp_path.joinpath(*["y" * 200] * 3) if case.startswith("a path") else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    if case == "a folder":
        (folder / FILE).mkdir()
    elif case == "a pipe":
        os.mkfifo(folder / FILE)
    with pytest.raises(StoreError, match=r"the sessions cannot be (opened|read or written)"):
        Store(folder)


def test_too_little_free_space_is_found_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(tmp_path, quota=Quota(min_free_bytes=10**6)) as store:
        session, _ = game(store)
        play(store, session.id, ["a"])
        monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=1_100_000))
        with pytest.raises(StoreFullError, match="MiB short.*free disk space"):
            _finish(store, session.id, 2, bytes(200_000))
        monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=10**6))
        for attempt in (lambda: game(store), lambda: store.branch(session.id, 1)):
            with pytest.raises(StoreFullError):
                attempt()
        assert store.get(session.id).turns == store.count() == 1
        monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=10**9))
        _finish(store, session.id, 2, bytes(200_000))
        assert store.get(session.id).turns == 2


def _finish(store: Store, session_id: str, turn: int, shot: bytes) -> None:
    state = GameState(1, 1, 1, 1)
    store.finish_turn(session_id, StoredTurn(turn, f"turn-{turn}", "say it", 7, state, CharacterState()), {turn: shot})
