"""Stored sessions, turns and shots, and the statements that read, write, copy and delete turns and shots.

Callers open the transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from animegamer_rt.engine_identity import difference
from animegamer_rt.noise import VERSION
from animegamer_rt.state.game import STRENGTHS, VALUES, CharacterState, GameState, Scene, TurnRecord

from .database import Database
from .errors import SessionRefusedError

CHECKPOINT_TURNS = 50
"""The shots of every so many turns' window are kept, so no replay predicts more turns again than that.

A full store keeps every other one, or fewer."""


@dataclass(frozen=True, slots=True)
class StoredSession:
    """One stored game. turns: how many are finished; character: after the last one; seed: of the next one.

    engines: those that rendered the last turn (`Engines.identity`); None before the first turn, or if unknown.
    """

    id: str
    bundle_name: str
    bundle_fingerprint: str
    seed: int
    history_turns: int
    turns: int
    character: CharacterState
    closed: bool
    engines: str | None = None

    def require_bundle(self, name: str, fingerprint: str) -> None:
        """Raises SessionRefusedError unless the session was played with the bundle of this fingerprint."""
        if fingerprint != self.bundle_fingerprint:
            raise SessionRefusedError(
                "the session was played with another bundle",
                code="bundle_mismatch",
                where=f"session {self.id}",
                found=f"{self.bundle_name} ({self.bundle_fingerprint})",
                expected=f"{name} ({fingerprint})",
                do="start the server with that bundle, or open a new session",
            )

    def require_engines(self, engines: str | None) -> None:
        """Raises SessionRefusedError unless `engines` made the session's turns, or either is unknown.

        Identities of older versions have only kind and precision, and only these are compared.
        """
        if engines is None or self.engines in (None, engines):
            return
        if unlike := difference(self.engines, engines):
            raise SessionRefusedError(
                "the session was played with other engines, so its turns would look different",
                code="engines_mismatch",
                where=f"session {self.id}",
                found=unlike[0],
                expected=unlike[1],
                do="open a new session, or ask the operator to start the server with those engines, or "
                "with the setting continue_on_other_engines",
            )


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """One finished turn. character: after it. seed: of its noise; a branch with a new seed keeps the old turns' seeds.

    scene: what a reader made of the instruction; None without a reader. noise_version: of its noise (`noise.VERSION`).
    """

    turn: int
    turn_id: str
    instruction: str
    seed: int
    game_state: GameState
    character: CharacterState
    scene: Scene | None = None
    noise_version: int = VERSION


@dataclass(frozen=True, slots=True)
class StoredStart:
    """Turn 0 of a session that starts from a picture: its text in prompts, its shot (fp16 [226, D]), its scene.

    scene: None if no reader recognised anybody.
    """

    text: str
    shot: bytes
    scene: Scene | None = None


@dataclass(frozen=True, slots=True)
class TurnContext:
    """The context of a turn: `log` has the turns `first + 1` .. `turn - 1`, oldest first, with their texts in prompts.

    character, scene: before the turn. start: turn 0, if the history window or a new prediction may need it.
    shots: turn -> fp16 [226, D], row-major, of the newest window that is stored whole; `log` begins with its turns. The
    worker predicts those of the turns after it again.
    """

    first: int
    log: tuple[TurnRecord, ...]
    shots: Mapping[int, bytes]
    character: CharacterState
    scene: Scene | None = None
    start: StoredStart | None = None


_NAMES = (
    "turn",
    "turn_id",
    "instruction",
    "seed",
    *STRENGTHS,
    *(f"character_{name}" for name in VALUES),
    "scene",
    "noise_version",
)
_COLUMNS = ", ".join(_NAMES)


def insert_turn(database: Database, session: int, turn: StoredTurn, done: bool) -> None:
    """Adds a finished turn. done: whether its player may be notified."""
    values = {
        "session": session,
        "turn": turn.turn,
        "turn_id": turn.turn_id,
        "instruction": turn.instruction,
        "seed": turn.seed,
        **asdict(turn.game_state),
        **{f"character_{name}": value for name, value in asdict(turn.character).items()},
        "scene": None if turn.scene is None else turn.scene.to_json(),
        "noise_version": turn.noise_version,
        "done": done,
    }
    places = ", ".join("?" * len(values))
    database.rows(f"INSERT INTO turns ({', '.join(values)}) VALUES ({places})", *values.values())


def settle_not_done(database: Database, boot: str | None) -> None:
    """Delete or keep the turns that were unconfirmed when the file was last closed; boot: `boot_id` now.

    Same boot: the server was killed before any player got `done` for them, so they are deleted. Other boot: a power cut
    may have lost a confirmation, so they are kept.
    """
    if database.rows("SELECT boot FROM store") == [(boot,)]:
        database.rows("DELETE FROM turns WHERE NOT done")
    else:
        database.rows("UPDATE turns SET done = 1 WHERE NOT done")
        database.rows("UPDATE store SET boot = ?", boot)


def read_turns(database: Database, session: int, first: int, last: int) -> list[StoredTurn]:
    """The stored turns from `first` to `last`, oldest first."""
    sql = f"SELECT {_COLUMNS} FROM turns WHERE session = ? AND turn BETWEEN ? AND ? ORDER BY turn"
    return [_turn(row) for row in database.rows(sql, session, first, last)]


def find_turn(database: Database, session: int, turn_id: str) -> StoredTurn | None:
    """The turn with this id, if it is finished."""
    rows = database.rows(f"SELECT {_COLUMNS} FROM turns WHERE session = ? AND turn_id = ?", session, turn_id)
    return _turn(rows[0]) if rows else None


def read_history(database: Database, session: int, turn: int, history_turns: int) -> TurnContext:
    """The context of `turn`. Its cost does not grow with the game while the window's shots are stored."""
    known = known_turns(database, session, turn - 1, history_turns)
    first = max(0, known - history_turns)
    of = "SELECT turn, shot FROM {} WHERE session = ?1 AND turn BETWEEN ?2 AND ?3"
    sql = f"{of.format('shots')} UNION {of.format('checkpoints')} ORDER BY turn"
    shots: dict[int, bytes] = dict(database.rows(sql, session, first + 1, known))
    past = read_turns(database, session, first + 1, turn - 1)
    log = tuple(TurnRecord(row.instruction if row.scene is None else row.scene.caption, row.game_state) for row in past)
    before = past[-1:] or read_turns(database, session, turn - 1, turn - 1)
    start = None if first else read_start(database, session)
    if not before:
        return TurnContext(first, log, shots, CharacterState(), None if start is None else start.scene, start)
    return TurnContext(first, log, shots, before[0].character, before[0].scene, start)


def known_turns(database: Database, session: int, turn: int, history_turns: int) -> int:
    """The last turn up to `turn` with the shots of its whole window in the store; those of later ones are missing."""
    oldest = max(0, turn - history_turns) + 1
    [(stored,)] = database.rows(
        "SELECT count(*) FROM shots WHERE session = ? AND turn BETWEEN ? AND ?", session, oldest, turn
    )
    if stored == turn - oldest + 1:
        return turn
    of = "SELECT turn FROM {} WHERE session = ?1 AND turn <= ?2"
    sql = f"{of.format('shots')} UNION {of.format('checkpoints')} ORDER BY turn DESC"
    newest = count = 0
    for (number,) in database.rows(sql, session, turn):
        newest, count = (newest, count + 1) if number == newest - count else (number, 1)
        if count == min(history_turns, newest):
            return newest
    return 0


def insert_start(database: Database, session: int, start: StoredStart) -> None:
    """Adds turn 0 of a session that starts from a picture."""
    scene = None if start.scene is None else start.scene.to_json()
    database.rows("INSERT INTO starts VALUES (?, ?, ?, ?)", session, start.text, scene, start.shot)


def read_start(database: Database, session: int) -> StoredStart | None:
    """Turn 0 of a session that starts from a picture; None of others."""
    rows = database.rows("SELECT text, shot, scene FROM starts WHERE session = ?", session)
    if not rows:
        return None
    [(text, shot, scene)] = rows
    return StoredStart(text, shot, None if scene is None else Scene.from_json(scene))


def write_shots(database: Database, session: int, turns: int, shots: Mapping[int, bytes], kept: int) -> None:
    """Write new shots; in a game of `turns` turns, only the newest `kept` stay."""
    oldest = turns - kept + 1
    for turn, shot in shots.items():
        if turn >= oldest:
            database.rows("INSERT OR REPLACE INTO shots VALUES (?, ?, ?)", session, turn, shot)
    database.rows("DELETE FROM shots WHERE session = ? AND turn < ?", session, oldest)


def write_checkpoint(database: Database, session: int, turn: int, history_turns: int) -> None:
    """Keep the newest window's shots, at the end of every CHECKPOINT_TURNS turns."""
    if turn % CHECKPOINT_TURNS == 0:
        sql = "INSERT OR REPLACE INTO checkpoints SELECT * FROM shots WHERE session = ? AND turn > ?"
        database.rows(sql, session, turn - history_turns)


def write_predicted(database: Database, session: int, shots: Mapping[int, bytes], history_turns: int) -> None:
    """Write shots that were predicted again; the window they end replaces the last such window, but no checkpoint."""
    newest = max(shots)
    database.rows(
        "DELETE FROM checkpoints WHERE session = ? AND turn NOT BETWEEN ? AND ? AND turn % ? BETWEEN 1 AND ?",
        session,
        newest - history_turns + 1,
        newest,
        CHECKPOINT_TURNS,
        CHECKPOINT_TURNS - history_turns,
    )
    for turn, shot in shots.items():
        database.rows("INSERT OR IGNORE INTO checkpoints VALUES (?, ?, ?)", session, turn, shot)


def kept_shots(history_turns: int) -> int:
    """How many of the newest shots to keep. Others are predicted again, exactly.

    One more than the history window, so that replaying the last turn is as cheap as playing the next one.
    """
    return history_turns + 1 if history_turns else 0


def shot_bytes(database: Database, session: int, turn: int) -> int:
    """Bytes of all stored shots of the turns up to `turn`."""
    of = "SELECT length(shot) AS size FROM {} WHERE session = ?1 AND turn <= ?2"
    sql = f"SELECT total(size) FROM ({of.format('shots')} UNION ALL {of.format('checkpoints')})"
    return int(database.rows(sql, session, turn)[0][0])


def copy_turns(database: Database, source: int, target: int, turn: int) -> None:
    """Copy a session's start and its turns up to `turn`, with their stored shots, to a new session."""
    database.rows("INSERT INTO starts SELECT ?, text, scene, shot FROM starts WHERE session = ?", target, source)
    for table, columns in (("turns", _COLUMNS), ("shots", "turn, shot"), ("checkpoints", "turn, shot")):
        found = f"SELECT ?, {columns} FROM {table} WHERE session = ? AND turn <= ?"
        database.rows(f"INSERT INTO {table} (session, {columns}) {found}", target, source, turn)


def delete_turns_after(database: Database, session: int, turn: int) -> None:
    """Delete all turns after `turn`, with their shots."""
    database.rows("DELETE FROM turns WHERE session = ? AND turn > ?", session, turn)


def drop_shots(database: Database, session: int) -> None:
    """Delete a session's shots. They can be predicted again, exactly."""
    database.rows("DELETE FROM shots WHERE session = ?", session)
    database.rows("DELETE FROM checkpoints WHERE session = ?", session)


def _turn(row: tuple[Any, ...]) -> StoredTurn:
    of = dict(zip(_NAMES, row, strict=True))
    state = GameState(**{name: of[name] for name in STRENGTHS})
    character = CharacterState(**{name: of[f"character_{name}"] for name in VALUES})
    scene = None if of["scene"] is None else Scene.from_json(of["scene"])
    return StoredTurn(
        of["turn"], of["turn_id"], of["instruction"], of["seed"], state, character, scene, of["noise_version"]
    )
