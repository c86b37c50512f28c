"""A backup holds every turn that was done when it began, also while the server writes; a damaged one is none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from live_server import until_timeout
from test_store import game, play

from animegamer_rt.cli import main
from animegamer_rt.errors import OutputError, StoreError
from animegamer_rt.noise import VERSION
from animegamer_rt.serving.store import FILE, Store, StoredTurn, back_up

RELEASED = Path(__file__).with_name("store-schema-5.sqlite")
"""A store of 0.1.0, written by its server: three sessions of the bundle `tiny`, one of them closed."""
TURNS = 40


WRITER = """
import sys
from pathlib import Path
from test_store import game, play
from animegamer_rt.serving.store import Store
with Store(Path(sys.argv[1])) as store, open(sys.argv[2], "w") as heard:
    store.database.rows("PRAGMA wal_autocheckpoint = 20")
    session, _ = game(store)
    while True:
        play(store, session.id, ["a"])
        print(end="x", file=heard, flush=True)
"""
"""Plays without a pause, and the log is begun anew all the time."""


def test_a_store_that_is_written_all_the_time_is_copied_whole(tmp_path: Path) -> None:
    state, heard = tmp_path / "state", tmp_path / "heard"
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", WRITER, str(state), str(heard)], env=paths) as writer:
        try:
            for _ in until_timeout():
                if heard.exists() and heard.stat().st_size >= TURNS:
                    break
            for number in range(5):
                before = heard.stat().st_size
                copy = back_up(state, tmp_path / f"copy {number}")
                assert TURNS <= before <= copy.turns <= heard.stat().st_size + 1
                with Store(tmp_path / f"copy {number}") as store:
                    (session,) = store.database.rows("SELECT id FROM sessions")[0]
                    assert store.get(session).turns == copy.turns
                    play(store, session, ["it goes on"])
        finally:
            writer.kill()


def test_a_copy_needs_sessions_and_a_new_folder_and_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state, copy = tmp_path / "state", tmp_path / "copy"
    assert main(["sessions", "backup", str(copy), "--state-dir", str(state)]) == 2
    assert "no sessions to back up" in capsys.readouterr().err
    with Store(state) as store:
        session, token = game(store)
        play(store, session.id, ["a", "b"])
        store.finish_turn(session.id, StoredTurn(3, "not heard", "c", 7, *_last(store, session.id)), {}, done=False)
        assert main(["sessions", "backup", str(copy), "--state-dir", str(state)]) == 0
        assert f"{copy / FILE}: 1 sessions, 2 turns" in capsys.readouterr().out
    with Store(copy) as store:
        assert store.resume(token).turns == 2, "the turn that nobody had heard is played again"
    with pytest.raises(OutputError, match="give the name of a new folder"):
        back_up(state, copy)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / FILE).touch()
    with pytest.raises(StoreError, match=f"{re.escape(str(tmp_path / 'empty'))}.*the file has no sessions"):
        back_up(tmp_path / "empty", tmp_path / "nothing")
    blanks = tmp_path / "a copy \u526f\u672c"
    assert main(["sessions", "backup", str(blanks), "--state-dir", str(state)]) == 0
    assert f"serve --state-dir '{blanks}'" in capsys.readouterr().out, "a command that can be copied"


def test_a_damaged_store_makes_no_backup(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with Store(state) as store:
        session, _ = game(store)
        play(store, session.id, ["a"] * 60)
    path = state / FILE
    path.write_bytes(path.read_bytes()[:8192] + b"\x5a" * 4096 + path.read_bytes()[12288:])
    with pytest.raises(StoreError, match="damaged"):
        back_up(state, tmp_path / "copy")
    assert [entry.name for entry in tmp_path.iterdir()] == ["state"]


def test_a_store_of_the_last_release_goes_on(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    shutil.copyfile(RELEASED, tmp_path / "state" / FILE)
    for folder in (tmp_path / "state", tmp_path / "copy"):
        with Store(folder) as store:
            assert store.count() == 2
            played = store.resume("token of the first session")
            assert (played.turns, played.seed, played.history_turns) == (5, 7, 3)
            assert {turn.noise_version for turn in store.turns(played.id, 1, 5)} == {1}
            context = store.turn_context(played.id, 6)
            assert [row.text for row in context.log] == ["c", "d", "e"] and sorted(context.shots) == [3, 4, 5]
            other = store.resume("token of the second session")
            play(store, other.id, ["it goes on"])
            assert store.turns(other.id, other.turns + 1, 99)[0].noise_version == VERSION
        if folder.name == "state":
            assert back_up(folder, tmp_path / "copy").sessions == 3


def _last(store: Store, session: str) -> tuple[object, object]:
    turn = store.turns(session, 1, 99)[-1]
    return turn.game_state, turn.character
