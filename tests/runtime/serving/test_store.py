"""Sessions live on in the store, always exactly; its file is left alone where it is not ours, and what cannot be
written is said."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from animegamer_rt.errors import StoreError
from animegamer_rt.serving.store import database
from animegamer_rt.serving.store.database import Quota
from animegamer_rt.serving.store.errors import SessionRefusedError, StoreFullError
from animegamer_rt.serving.store.schema import SCHEMA_VERSION, SCRIPTS
from animegamer_rt.serving.store.store import FILE, Store
from animegamer_rt.serving.store.turns import StoredSession, StoredTurn, TurnContext
from animegamer_rt.state.game import CharacterState, GameState, Scene

WINDOW_TURNS = 3


def shot_of(text: str, window: list[bytes]) -> bytes:
    """Stands in for the predictor: depends on the instruction and on the window's shots, as a real one does."""
    return hashlib.sha256(text.encode() + b"".join(window)).digest()


def state_of(text: str) -> GameState:
    """Stands in for the read-out: four strengths that depend on the instruction."""
    return GameState(*(byte % 11 - 5 for byte in hashlib.sha256(text.encode()).digest()[:4]))


def work(history: TurnContext, turn: int, text: str, window_turns: int) -> tuple[Mapping[int, bytes], GameState]:
    """What a worker does with a job: the shots of this turn and of any that it had to predict again, and the state."""
    shots, again = dict(history.shots), {}
    if history.first == 0 and len(shots) < len(history.log):
        for number, row in enumerate(history.log, 1):
            window = [again[past] for past in range(max(1, number - window_turns), number)]
            again[number] = shot_of(row.text, window)
        shots = again
    window = [shots[past] for past in range(max(1, turn - window_turns), turn)]
    needed = {number: shot for number, shot in again.items() if number >= turn - window_turns}
    return {**needed, turn: shot_of(text, window)}, state_of(text)


def play(store: Store, session_id: str, texts: list[str]) -> list[bytes]:
    """Plays a turn for each text, as the front does; returns the shots."""
    played = []
    for text in texts:
        session = store.get(session_id)
        turn = session.turns + 1
        history = store.turn_context(session_id, turn)
        shots, state = work(history, turn, text, session.history_turns)
        after = history.character.after(state)
        store.finish_turn(session_id, StoredTurn(turn, f"id-{turn}-{text}", text, 7, state, after), shots)
        played.append(shots[turn])
    return played


def game(store: Store, seed: int = 7) -> tuple[StoredSession, str]:
    """A new session of three turns' window."""
    return store.open("tiny", "f00d", seed, WINDOW_TURNS)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "state", quota=Quota(min_free_bytes=0)) as opened:
        yield opened


def test_the_token_is_nowhere_in_the_files(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        _, token = game(store)
        written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    written += b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert hashlib.sha256(token.encode()).hexdigest().encode() in written
    assert token.encode() not in written


def test_a_session_of_another_bundle_is_refused_by_name(store: Store) -> None:
    session, _ = game(store)
    session.require_bundle("renamed", "f00d")
    with pytest.raises(SessionRefusedError, match=r"found tiny \(f00d\); expected full \(beef\)") as error:
        session.require_bundle("full", "beef")
    assert error.value.code == "bundle_mismatch"


def test_a_session_names_the_engines_that_made_its_last_turn(store: Store) -> None:
    session, _ = game(store)

    def finish(turn: int, engines: str | None) -> None:
        turn_now = StoredTurn(turn, f"{turn}", "a", 7, state_of("a"), CharacterState())
        store.finish_turn(session.id, turn_now, {turn: b""}, engines)

    store.get(session.id).require_engines("gpu")
    finish(1, None)
    store.get(session.id).require_engines("gpu")
    finish(2, "cpu")
    finish(3, None)
    store.get(session.id).require_engines(None)
    fresh, branch = store.branch(session.id, 0)[0], store.branch(session.id, 1)[0]
    assert (store.get(session.id).engines, branch.engines, fresh.engines) == ("cpu", "cpu", None)
    with pytest.raises(SessionRefusedError, match="found cpu; expected gpu; .*continue_on_other_engines") as error:
        store.get(session.id).require_engines("gpu")
    assert error.value.code == "engines_mismatch"
    finish(4, "gpu")
    store.get(session.id).require_engines("gpu")
    assert store.rewind(session.id, 0).engines is None


def test_a_closed_session_can_be_read_and_never_played(store: Store) -> None:
    session, token = game(store)
    play(store, session.id, ["a"])
    store.close_session(session.id)
    closed = store.get(session.id)
    assert closed.closed and closed.turns == 1 and store.count() == 0
    assert [turn.instruction for turn in store.turns(session.id, 1, 9)] == ["a"]
    attempts = (
        lambda: store.resume(token),
        lambda: store.check(session.id, token),
        lambda: store.rewind(session.id, 0),
        lambda: store.branch(session.id, 1),
        lambda: play(store, session.id, ["b"]),
    )
    for attempt in attempts:
        with pytest.raises(SessionRefusedError) as error:
            attempt()
        assert error.value.code == "session_closed"
    assert store.get(session.id) == closed
    with pytest.raises(SessionRefusedError, match="belongs to another session"):
        store.check(session.id, "guessed")


def test_a_turn_id_counts_once_in_its_session(store: Store) -> None:
    session, _ = game(store)
    other, _ = game(store)
    state, character = GameState(1, 1, 1, 1), CharacterState()
    for owner in (session, other):
        store.finish_turn(owner.id, StoredTurn(1, "same", "a", 7, state, character), {1: b"1"})
    store.finish_turn(session.id, StoredTurn(1, "same", "a", 7, state, character), {1: b"1"})
    assert store.get(session.id).turns == store.get(other.id).turns == 1
    with pytest.raises(SessionRefusedError, match="turn 2 with the id of turn 1"):
        store.finish_turn(session.id, StoredTurn(2, "same", "b", 7, state, character), {2: b"2"})
    assert store.get(session.id).turns == 1


def test_a_turn_that_was_not_played_cannot_be_gone_back_to_nor_passed_over(store: Store) -> None:
    session, _ = game(store)
    play(store, session.id, ["a", "b"])
    for turn in (0, 2, 4, -1):
        with pytest.raises(SessionRefusedError, match="expected turn 3") as error:
            store.finish_turn(session.id, StoredTurn(turn, "z", "b", 7, GameState(1, 1, 1, 1), CharacterState()), {})
        assert error.value.code == "no_such_turn"
    for turn in (-1, 3):
        for go in (store.rewind, store.branch):
            with pytest.raises(SessionRefusedError, match=r"expected 0 to 2"):
                go(session.id, turn)
    with pytest.raises(SessionRefusedError, match="no such turn"):
        store.turn_context(session.id, 4)
    assert store.get(session.id).turns == 2 and store.count() == 1


@pytest.mark.parametrize("window_turns", [0, 1, 3])
def test_any_order_of_moves_gives_the_game_of_a_straight_run(tmp_path: Path, window_turns: int) -> None:
    moves, games = random.Random(window_turns), dict[str, _Remembered]()
    store = Store(tmp_path)
    for _ in range(80):
        move = moves.choice(["open", "play", "play", "play", "play", "rewind", "branch", "again", "restart"])
        if move == "open" or not games:
            session, token = store.open("tiny", "f00d", 1, window_turns)
            games[session.id] = _Remembered(token)
            continue
        name = moves.choice(sorted(games))
        known = games[name]
        turn = moves.randint(0, len(known.texts))
        if move == "play":
            text = f"say {moves.randint(0, 999)}"
            known.texts.append(text)
            known.shots += play(store, name, [text])
        elif move == "rewind":
            del known.texts[turn:], known.shots[turn:]
            store.rewind(name, turn)
        elif move == "branch":
            branch, token = store.branch(name, turn)
            games[branch.id] = _Remembered(token, known.texts[:turn], known.shots[:turn])
        elif move == "again" and turn:
            history = store.turn_context(name, turn)
            shots, _ = work(history, turn, known.texts[turn - 1], window_turns)
            assert shots[turn] == known.shots[turn - 1]
        elif move == "restart":
            store.close()
            store = Store(tmp_path)
    for name, known in games.items():
        straight = list[bytes]()
        for text in known.texts:
            straight.append(shot_of(text, straight[-window_turns:] if window_turns else []))
        session = store.resume(known.token)
        assert session.id == name and known.shots == straight
        assert [turn.instruction for turn in store.turns(name, 1, 999)] == known.texts
        character = CharacterState()
        for text in known.texts:
            character = character.after(state_of(text))
        assert session.character == character
    store.close()


@dataclass
class _Remembered:
    token: str
    texts: list[str] = field(default_factory=list)
    shots: list[bytes] = field(default_factory=list)


@pytest.mark.parametrize("window", [0, 2])
def test_the_next_turn_gets_the_last_scene_and_the_captions_of_its_window(store: Store, window: int) -> None:
    session, _ = store.open("tiny", "f00d", 7, window)
    scenes = [Scene((name,), {"Mia": "party"}, "run", 2, "town", "day", "left", f"Caption {name}") for name in "ABC"]
    for turn, scene in enumerate(scenes, 1):
        state, after = GameState(1, 1, 1, 1), CharacterState()
        finished = StoredTurn(turn, f"t{turn}", f"typed {turn}", 7, state, after, scene)
        store.finish_turn(session.id, finished, {turn: b"s"})
    branch, _ = store.branch(session.id, 2)
    captions = ["Caption A", "Caption B", "Caption C"]
    for other, turns in ((session, 3), (branch, 2), (session, 1)):
        store.rewind(other.id, turns)
        context = store.turn_context(other.id, turns + 1)
        assert context.scene == scenes[turns - 1]
        assert [row.text for row in context.log] == captions[max(0, turns - window) : turns]
    assert store.turn_context(session.id, 1).scene is None
    assert [turn.instruction for turn in store.turns(branch.id, 1, 9)] == ["typed 1", "typed 2"]


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


@pytest.mark.parametrize("case", ["text", "someone else's tables", "no version", "cut short"])
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
            name = "store" if case == "no version" else "recipes"
            foreign.execute(f"CREATE TABLE {name} (schema_version TEXT)")
            foreign.execute(f"INSERT INTO {name} VALUES ('pie')")
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


@pytest.mark.parametrize("name", [FILE, f"{FILE}-wal"])
def test_no_turn_counts_once_the_file_was_cut_short(tmp_path: Path, name: str) -> None:
    with Store(tmp_path) as store:
        session, _ = game(store)
        play(store, session.id, ["a"] * 40)
    with Store(tmp_path) as store:
        play(store, session.id, ["b"])
        os.truncate(tmp_path / name, 0)
        for _ in range(2):
            with pytest.raises(StoreError, match=rf"{name}: .*truncated while the server was running.* 0 now"):
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


def test_too_little_space_is_found_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
