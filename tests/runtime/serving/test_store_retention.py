"""What old turns keep is bounded, what the store keeps is bounded, and dropping shots never changes a game."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from test_store import game, play

from animegamer_rt.serving.store.database import Quota
from animegamer_rt.serving.store.errors import SessionRefusedError, StoreFullError
from animegamer_rt.serving.store.store import Store
from animegamer_rt.serving.store.turns import CHECKPOINT_TURNS, StoredTurn
from animegamer_rt.state.game import CharacterState, GameState

SHOT_BYTES = 100_000
TEXTS = [f"turn {number}" for number in range(1, 11)]


class Clock:
    """Time as the test says."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def kept(store: Store, session_id: str) -> list[int]:
    """The turns whose shots are kept."""
    sql = "SELECT turn FROM shots JOIN sessions ON key = session WHERE id = ? ORDER BY turn"
    return [turn for (turn,) in store.database.rows(sql, session_id)]


def heavy(store: Store, turns: int = 2) -> str:
    """A session whose every shot has 100 000 bytes; returns its id."""
    session, _ = game(store)
    for turn in range(1, turns + 1):
        finished = StoredTurn(turn, f"{turn}", "a", 7, GameState(1, 1, 1, 1), CharacterState())
        store.finish_turn(session.id, finished, {turn: bytes(SHOT_BYTES)})
    return session.id


def test_no_turn_of_a_long_game_is_far_from_shots_to_go_on_from(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        session, _ = game(store)
        shots = play(store, session.id, [f"text {turn}" for turn in range(1, 131)])
        assert max(store.missing_shots(session.id, turn) for turn in range(1, 132)) == CHECKPOINT_TURNS - 1
        context = store.turn_context(session.id, 80)
        assert (context.first, len(context.log)) == (47, 32)
        assert context.shots == {turn: shots[turn - 1] for turn in (48, 49, 50)}
        for replayed in (80, 30):
            store.add_shots(session.id, {turn: shots[turn - 1] for turn in range(replayed - 3, replayed)})
            assert store.missing_shots(session.id, replayed) == 0 == store.missing_shots(session.id, 101)
        assert store.missing_shots(session.id, 80) == 29, "those of one replay are kept"
        branch, _ = store.branch(session.id, 105)
        assert [store.missing_shots(branch.id, turn) for turn in range(1, 107)] == [
            store.missing_shots(session.id, turn) for turn in range(1, 107)
        ]
        store.rewind(session.id, 100)
        play(store, session.id, ["another"])
        assert store.missing_shots(session.id, 102) == 0


def test_a_full_store_gives_up_checkpoints_before_a_turn(tmp_path: Path) -> None:
    with Store(tmp_path, quota=Quota(recent_s=1000)) as store:
        session = heavy(store, 60)
        assert store.missing_shots(session, 51) == 0
        store.quota = Quota(max_bytes=store.database.used_bytes(), recent_s=1000)
        finished = StoredTurn(61, "61", "a", 7, GameState(1, 1, 1, 1), CharacterState())
        store.finish_turn(session, finished, {61: bytes(SHOT_BYTES)})
        assert store.missing_shots(session, 62) == 0 < store.missing_shots(session, 51)


def test_a_full_store_thins_the_checkpoints_of_all_games_evenly(tmp_path: Path) -> None:
    clock = Clock()
    with Store(tmp_path, clock=clock, quota=Quota(recent_s=10)) as store:
        idle = heavy(store, 210)
        clock.now += 100
        busy = heavy(store, 210)
        for shots, distance in ((15, 100), (6, 200)):
            store.quota = Quota(max_bytes=store.database.used_bytes() - shots * SHOT_BYTES, recent_s=10)
            store.sweep(clock.now)
            for session in (idle, busy):
                missing = [store.missing_shots(session, turn) for turn in range(1, 202)]
                assert max(missing) == distance - 1, "and not of some turns none, and of others all"


def test_a_turn_of_a_long_game_costs_what_a_turn_of_a_short_one_costs(tmp_path: Path) -> None:
    def steps(session_id: str, turn: int) -> int:
        """SQLite's own instructions, in tens, that it takes to find out what the turn needs."""
        counted = 0

        def count() -> int:
            nonlocal counted
            counted += 1
            return 0

        store.database.connection.set_progress_handler(count, 10)
        history = store.turn_context(session_id, turn)
        store.get(session_id)
        store.database.connection.set_progress_handler(None, 10)
        assert len(history.log) == len(history.shots) == 3
        return counted

    with Store(tmp_path) as store:
        session, _ = game(store)
        play(store, session.id, TEXTS)
        short = steps(session.id, 11)
        columns = [name for _, name, *_ in store.database.rows("PRAGMA table_info(turns)")]
        values = ", ".join({"turn": "?1", "turn_id": "?2"}.get(name, name) for name in columns)
        copy = f"INSERT INTO turns SELECT {values} FROM turns WHERE session = 1 AND turn = 10"
        with store.database.transaction():  # what finish_turn does 4990 times, in one go
            for turn in range(11, 5001):
                store.database.rows(copy, turn, f"id-{turn}")
        for turn in (4998, 4999, 5000):
            store.database.rows("INSERT INTO shots VALUES (1, ?, x'00')", turn)
        assert store.get(session.id).turns == 5000
        assert steps(session.id, 5001) <= 2 * short
        play(store, session.id, ["the five thousand and first"])
        assert store.get(session.id).turns == 5001


def test_a_sweep_removes_what_is_too_old_and_says_so(tmp_path: Path) -> None:
    clock = Clock()
    with Store(tmp_path, clock=clock, quota=Quota(max_age_s=100, recent_s=10)) as store:
        old, used, playing = heavy(store), heavy(store), heavy(store)
        clock.now += 95
        play(store, used, [])
        store.rewind(used, 1)
        swept = store.sweep(clock.now + 20, in_use=[playing])
        assert swept.removed == (old,) and not swept.more
        assert swept.freed_bytes >= 2 * SHOT_BYTES
        with pytest.raises(SessionRefusedError, match="no such session"):
            store.get(old)
        assert store.get(used).turns == 1 and store.get(playing).turns == 2
        assert store.database.rows("SELECT count(*) FROM turns") == [(3,)]
        assert store.sweep(clock.now + 20, in_use=[playing]).removed == ()


@pytest.mark.parametrize("clock_step_s", [0.0, 100_000.0])
def test_a_sweep_beside_20_000_sessions_in_use_does_not_hold_the_loop(tmp_path: Path, clock_step_s: float) -> None:
    with Store(tmp_path, quota=Quota(max_age_s=7200, recent_s=10)) as store:
        template, _ = game(store)
        columns = [name for _, name, *_ in store.database.rows("PRAGMA table_info(sessions)") if name != "key"]
        own = {"id": "'s' || value", "token_sha256": "'t' || value", "used": "used - 2000"}
        store.database.rows("BEGIN")
        store.database.rows(
            f"INSERT INTO sessions ({', '.join(columns)}) SELECT {', '.join(own.get(one, one) for one in columns)} "
            "FROM sessions, (WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n LIMIT 20000) "
            "SELECT value FROM n) WHERE id = ?",
            template.id,
        )
        store.database.rows("COMMIT")
        in_use = {f"s{number}" for number in range(1, 20_001)}
        store.quota = Quota(max_bytes=1, max_age_s=7200, recent_s=10)
        now, took = store.database.rows("SELECT max(used) FROM sessions")[0][0] + clock_step_s, []
        for _ in range(5):
            began = time.process_time()
            swept = store.sweep(now, in_use)
            took.append(time.process_time() - began)
            assert not set(swept.removed) & in_use
        assert min(took) < 0.05


def test_over_the_quota_the_shots_of_the_longest_unused_go_first_and_no_game_with_them(tmp_path: Path) -> None:
    clock = Clock()
    with Store(tmp_path, clock=clock, quota=Quota(recent_s=10)) as store:
        names = []
        for _ in range(4):
            names.append(heavy(store))
            clock.now += 100
        store.quota = Quota(max_bytes=store.database.used_bytes() - SHOT_BYTES, recent_s=150)
        swept = store.sweep(clock.now)
        assert swept.shots_dropped == (names[0],) and swept.removed == ()
        assert swept.stored_bytes <= store.quota.max_bytes
        assert store.turn_context(names[0], 3).first == 0 and len(store.turn_context(names[0], 3).log) == 2
        assert kept(store, names[1]) == [1, 2]
        assert store.sweep(clock.now).shots_dropped == ()
        # A quota that cannot be kept still spares the recent one: names[3] was used 100 s ago.
        store.quota = Quota(max_bytes=1, recent_s=150)
        swept = store.sweep(clock.now, in_use=[names[1]])
        assert swept.shots_dropped == (names[2],)
        assert swept.removed == (names[0], names[2])
        assert kept(store, names[1]) == kept(store, names[3]) == [1, 2]


def test_a_sweep_of_very_much_stops_halfway_and_asks_to_be_called_again(tmp_path: Path) -> None:
    clock = Clock()
    with Store(tmp_path, clock=clock, quota=Quota(max_age_s=100)) as store:
        for _ in range(70):
            game(store)
        swept = store.sweep(clock.now + 10_000)
        assert len(swept.removed) == 50 and swept.more and store.count() == 20
        for _ in range(3):
            session, _ = game(store)
            play(store, session.id, ["a"])
        store.database.rows("UPDATE shots SET shot = zeroblob(5000000)")
        sweeps = [store.sweep(clock.now + 10_000) for _ in range(3)]
        assert [len(swept.removed) for swept in sweeps] == [22, 1, 0]
        assert [swept.more for swept in sweeps] == [True, False, False] and store.count() == 0


def test_a_finished_turn_finds_room_among_idle_sessions_shots_before_it_fails(tmp_path: Path) -> None:
    clock = Clock()
    with Store(tmp_path, clock=clock, quota=Quota(recent_s=10)) as store:
        idle = heavy(store, 4)
        clock.now += 100
        store.quota = Quota(max_bytes=store.database.used_bytes() + SHOT_BYTES, recent_s=10)
        busy = heavy(store, 3)
        assert kept(store, idle) == [] and store.get(idle).turns == 4
        assert kept(store, busy) == [1, 2, 3]
        with pytest.raises(StoreFullError, match="raise the quota"):
            heavy(store, 9)
        assert kept(store, busy) == [1, 2, 3]


def test_a_clock_that_was_set_costs_no_session_in_use(tmp_path: Path) -> None:
    clock, day = Clock(), 86_400.0
    with Store(tmp_path, clock=clock, quota=Quota(max_age_s=day, recent_s=10)) as store:
        played, left = heavy(store), heavy(store)
        for step in (2 * day, -3 * day, 5 * day):
            clock.now += step
            store.sweep(clock.now, in_use=[played])
            assert store.database.rows("SELECT used FROM sessions WHERE id = ?", played) == [(clock.now,)]
        with pytest.raises(SessionRefusedError, match="no such session"):
            store.get(left)
        clock.now += day - 60
        assert store.sweep(clock.now).removed == (), "it ages from then on"
        clock.now += 120
        assert store.sweep(clock.now).removed == (played,)
