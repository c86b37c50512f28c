"""A process that dies in the middle of anything leaves whole turns, every one that it had said was done, no other."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from test_store import game, play

from animegamer_rt.errors import StoreError
from animegamer_rt.serving.store import Store

RUNTIME = str(Path(__file__).parents[3] / "runtime")
STATEMENTS = [
    "BEFORE INSERT ON turns",
    "AFTER INSERT ON turns",
    "AFTER INSERT ON shots",
    "AFTER DELETE ON shots",
    "AFTER UPDATE ON sessions",
]

PLAY_ON = """
import pathlib, sys
from animegamer_rt.serving.store import StoredTurn, Store
from animegamer_rt.state.game import CharacterState, GameState
folder, *sessions = sys.argv[1:]
store = Store(pathlib.Path(folder))
while True:
    for session in sessions:
        turn = store.get(session).turns + 1
        shot = turn.to_bytes(4, "big") * 3000
        state = GameState(1, 0, -1, 2)
        character = store.get(session).character.after(state)
        store.finish_turn(session, StoredTurn(turn, f"id-{turn}", f"say {turn}", 7, state, character), {turn: shot})
        print(session, turn, flush=True)
"""


def child(code: str, *arguments: object) -> subprocess.Popen[str]:
    """A Python process that runs `code`; its output is read by the test."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": RUNTIME},
    )


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_turn_that_fails_midway_leaves_nothing_behind(tmp_path: Path, statement: str) -> None:
    with Store(tmp_path) as store:
        session, _ = game(store)
        play(store, session.id, list("abcde"))
        before = list(store.database.connection.iterdump()), store.get(session.id)
        store.database.rows(f"CREATE TEMP TRIGGER stop {statement} BEGIN SELECT RAISE(ABORT, 'the disk hiccuped'); END")
        with pytest.raises(StoreError, match="the disk hiccuped"):
            play(store, session.id, ["one more"])
        assert (list(store.database.connection.iterdump()), store.get(session.id)) == before
        store.database.rows("DROP TRIGGER stop")
        play(store, session.id, ["one more"])
        assert store.get(session.id).turns == 6


def test_a_killed_server_keeps_every_turn_that_it_had_confirmed(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        names = [game(store)[0].id for _ in range(3)]
    confirmed = dict.fromkeys(names, 0)
    when = random.Random(4)
    for _ in range(4):
        process = child(PLAY_ON, tmp_path, *names)
        assert process.stdout is not None
        for _ in range(when.randint(15, 40)):
            line = process.stdout.readline()
            session, turn = line.split()
            confirmed[session] = int(turn)
        process.kill()
        for line in process.communicate(timeout=60)[0].splitlines():
            if line.count(" ") == 1 and line.split()[0] in confirmed:
                confirmed[line.split()[0]] = int(line.split()[1])
        with Store(tmp_path) as store:
            assert store.database.rows("PRAGMA integrity_check") == [("ok",)]
            assert store.database.rows("PRAGMA foreign_key_check") == []
            for name in names:
                turns = store.get(name).turns
                assert confirmed[name] <= turns <= confirmed[name] + 1
                kept = store.turns(name, 1, turns + 1)
                assert [turn.turn for turn in kept] == list(range(1, turns + 1))
                assert [turn.turn_id for turn in kept] == [f"id-{turn}" for turn in range(1, turns + 1)]
                history = store.turn_context(name, turns + 1)
                assert history.shots == {turn: turn.to_bytes(4, "big") * 3000 for turn in range(turns - 2, turns + 1)}
    assert min(confirmed.values()) >= 15
