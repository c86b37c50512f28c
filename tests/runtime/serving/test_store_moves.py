"""A session that moves to another server's folder is in exactly one of the two at any moment, with all of its turns."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgpack
import pytest
from test_store import game, play

from animegamer_rt.cli import main
from animegamer_rt.errors import ConfigError, StoreError
from animegamer_rt.serving.store import (
    SessionMovedError,
    Shard,
    Store,
    UnknownSessionError,
    read_shard,
    shard_of,
    write_server_file,
)

TEXTS = ["a", "b", "c", "d", "e"]


def folders(root: Path) -> tuple[Path, Path]:
    """State folders of two servers that have been started once."""
    for name, port in (("here", 5570), ("there", 5580)):
        with Store(root / name):
            write_server_file(root / name, f"tcp://127.0.0.1:{port}", "tiny", "f00d")
    return root / "here", root / "there"


def test_a_moved_session_goes_on_and_its_player_is_told_where(tmp_path: Path) -> None:
    here, there = folders(tmp_path)
    with Store(here) as store, Store(there) as other:
        session, token = game(store)
        play(store, session.id, TEXTS)
        branch, branch_token = store.branch(session.id, 3, seed=9)
        play(store, branch.id, ["f"])
        before = {name: (store.turns(name, 1, 9), store.turn_context(name, 5)) for name in (session.id, branch.id)}
        assert store.move(session.id, there).turns == 5 and store.move(branch.id, there).turns == 4
        assert store.count() == 0
        for ask in (lambda: store.resume(token), lambda: store.check(session.id, token), lambda: store.get(session.id)):
            with pytest.raises(SessionMovedError, match=r"has moved.*connect to tcp://127\.0\.0\.1:5580.*same token"):
                ask()
        assert other.resume(token).turns == 5, "without a start of the server in between"
        assert other.check(branch.id, branch_token).seed == 9
        after = {name: (other.turns(name, 1, 9), other.turn_context(name, 5)) for name in before}
        assert after == before
        straight, _ = game(store)
        assert play(other, session.id, ["g"]) == play(store, straight.id, [*TEXTS, "g"])[5:]
        other.move(session.id, here)
        assert store.resume(token).turns == 6, "it came back"
        with pytest.raises(SessionMovedError, match="5570"):
            other.resume(token)
        store.move(session.id, there)
        assert other.resume(token).turns == 6
    for folder in (here, there):
        Store(folder).close()
    assert not list((here / "arrivals").iterdir()) + list((there / "arrivals").iterdir()), "files are left"


def test_what_cannot_be_moved_stays_and_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here, there = folders(tmp_path)
    with Store(here) as store:
        session, token = game(store)
        play(store, session.id, TEXTS)
    assert main(["sessions", "move", session.id, "--state-dir", str(here)]) == 2
    assert "--to" in capsys.readouterr().err
    for written in (None, "{", '{"store_version": [1]}'):
        if written is not None:
            (tmp_path / "server.json").write_text(written)
        assert main(["sessions", "move", session.id, "--state-dir", str(here), "--to", str(tmp_path)]) == 2
        assert "not a server's state folder" in capsys.readouterr().err
    reasons = {str(here): "in this folder already"}
    write_server_file(tmp_path, "tcp://127.0.0.1:5590", "other", "beef")
    reasons[str(tmp_path)] = "another bundle.*found beef; expected f00d"
    for to, reason in reasons.items():
        assert main(["sessions", "move", session.id, "--state-dir", str(here), "--to", to]) == 2, "no later try helps"
        assert re.search(f"{session.id}: NOT MOVED: .*{reason}", capsys.readouterr().out)
    assert main(["sessions", "move", "0badcafe", session.id, "--state-dir", str(here), "--to", str(there)]) == 2
    out = capsys.readouterr().out
    assert (
        "0badcafe: NOT MOVED: no such session; found '0badcafe'; its id is in the server's log" in out
        and "5 turns, now at tcp://127.0.0.1:5580" in out
    )
    assert main(["sessions", "move", "all", "--state-dir", str(there), "--to", str(here)]) == 0
    assert "1 moved, 0 not" in capsys.readouterr().out
    with Store(here) as store:
        assert store.resume(token).turns == 5


def test_a_session_waits_if_the_other_folder_is_away_in_the_middle_of_its_move(tmp_path: Path) -> None:
    here, there = folders(tmp_path)
    with Store(here) as store:
        session, token = game(store)
        play(store, session.id, TEXTS)
        store.move(session.id, there)
        store.database.rows("UPDATE sessions SET closed = 0")  # as if it had been killed before it knew
    there.rename(tmp_path / "away")
    with Store(here) as store:
        with pytest.raises(StoreError, match="folder cannot be read.*make that folder readable again"):
            store.resume(token)
        (tmp_path / "away").rename(there)
        store.sweep(0.0)
        with pytest.raises(SessionMovedError):
            store.resume(token)


KILLS = """
import os, shutil, signal, sys
from pathlib import Path
from animegamer_rt.serving.store import Store, UnknownSessionError
from animegamer_rt.serving.store.database import Database

root, session, turns = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
here, there, left = root / "try" / "here", root / "try" / "there", 0
rows = Database.rows

def counted(function, counts=lambda *arguments: True):
    def step(*arguments, **options):
        global left
        if counts(*arguments):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)
    return step

def move(step):
    global left
    left = step
    writes = counted(rows, lambda database, sql, *values: not sql.lstrip().startswith(("SELECT", "PRAGMA")))
    Database.rows = lambda database, sql, *values: writes(database, sql.replace("= FULL", "= OFF"), *values)
    os.fsync = lambda descriptor: None  # a kill, unlike a power cut, takes nothing that was written
    for name in ("rename", "fsync", "truncate", "unlink", "open"):
        setattr(os, name, counted(getattr(os, name)))
    with Store(here) as store:
        store.move(session, there)
    Store(there).close()
    Store(here).close()
    os._exit(0)

def plays(folder):
    with Store(folder) as store:
        try:
            return store.get(session).turns == len(store.turns(session, 1, 99)) == turns
        except UnknownSessionError:
            return False

for step in range(1000):
    shutil.rmtree(root / "try", ignore_errors=True)
    for folder in (here, there):
        shutil.copytree(root / folder.name, folder)
    child = os.fork()
    if not child:
        move(step)
    _, status = os.waitpid(child, 0)
    order = (here, there) if step % 2 else (there, here)
    found = [{folder.name: plays(folder) for folder in order} for _ in range(2)]
    print(step, *(name for one in found for name, played in one.items() if played))
    if not status:
        break
"""
"""Moves a session again and again, and is killed before one more of its writes to disk each time."""


def test_at_each_point_of_a_kill_exactly_one_folder_plays_the_session(tmp_path: Path) -> None:
    here, _ = folders(tmp_path)
    with Store(here) as store:
        session, _ = game(store)
        play(store, session.id, TEXTS)
    command = [sys.executable, "-c", KILLS, str(tmp_path), session.id, str(len(TEXTS))]
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(command, env=paths, capture_output=True, text=True, timeout=120, check=False)
    lines = [line.split()[1:] for line in run.stdout.splitlines()]
    assert run.returncode == 0 and len(lines) > 20, run.stderr
    for step, where in enumerate(lines):
        assert len(where) == 2 and len({*where}) == 1, f"killed before write {step}: played in {where}"
    assert lines[0] == ["here"] * 2 and lines[-1] == ["there"] * 2


def test_a_shards_tokens_name_it(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        with Store(tmp_path / str(number), shard=Shard(number, 3)) as store:
            session, token = game(store)
            _, branch = store.branch(session.id, 0)
            assert shard_of(token, 3) == shard_of(branch, 3) == number
    for text in ("3/2", "0/2", "1/0", "1", "a/b", "1/999"):
        with pytest.raises(ConfigError, match="--shard: no such shard.*k/n with k from 1 to n"):
            read_shard(text)
    with Store(tmp_path / "1") as store, pytest.raises(UnknownSessionError):
        store.resume("a token of no session")


def test_a_damaged_session_that_arrives_keeps_no_server_from_starting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    here, there = folders(tmp_path)
    with Store(here) as store, Store(there):
        session, token = game(store)
        play(store, session.id, TEXTS)
        store.move(session.id, there)
        [arrived] = (there / "arrivals").glob("*.session")
    whole = msgpack.unpackb(arrived.read_bytes())
    damages: list[tuple[str, Any]] = [("seed", 2**64 - 1), ("seed", []), ("seed", None), ("id", None), ("key", {})]
    for column, value in damages:
        [row] = whole["sessions"]
        packed = msgpack.packb({**whole, "sessions": [{**row, column: value}]})
        for content in (packed, packed[: len(packed) // 2]):
            arrived.write_bytes(content)
            with Store(there) as other:
                if arrived.exists():
                    assert "cannot be read" in caplog.text
                    with pytest.raises(UnknownSessionError):
                        other.resume("another token")
                other.database.rows("DELETE FROM sessions")
    arrived.write_bytes(msgpack.packb(whole))
    with Store(there) as other:
        assert other.resume(token).turns == 5, "a copy that was put back is played"


def test_a_damaged_note_of_a_move_is_said(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        session, token = game(store)
        for note in ("{", "[]", '{"move": 1}', b"\xff"):
            store.database.rows("UPDATE sessions SET moved = ?", note)
            with pytest.raises(StoreError, match="the sessions are damaged.*put back a copy"):
                store.resume(token)
    Store(tmp_path).close()
