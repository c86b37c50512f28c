"""Stores sessions: opens them, finds them by token, adds finished turns, rewinds, branches, closes, sweeps."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from animegamer_rt.errors import StoreError
from animegamer_rt.state.game import VALUES, CharacterState

from . import retention, turns
from .database import Database, Quota, boot_id
from .errors import SessionRefusedError, StoreFullError
from .retention import SweepResult
from .turns import StoredSession, StoredStart, StoredTurn, TurnContext

log = logging.getLogger("animegamer_rt.serving.server.store")
FILE = "sessions.sqlite"
ROW_BYTES = 64 * 2**10
"""Upper bound on the size of a turn's or session's row, with indexes and new pages."""

_SELECT = f"""
    SELECT s.key, s.token_sha256, s.id, s.bundle_name, s.bundle_fingerprint, s.seed, s.history_turns,
        s.closed OR s.moved NOTNULL, s.engines,
        t.turn, {", ".join(f"t.character_{name}" for name in VALUES)}
    FROM sessions s LEFT JOIN turns t
        ON t.session = s.key AND t.turn = (SELECT max(turn) FROM turns WHERE session = s.key)
"""


class _Found(NamedTuple):
    key: int
    token_sha256: str
    session: StoredSession


class Store:
    """All sessions in `folder`/sessions.sqlite. Only one Store at a time may use the folder, from one thread.

    A change is on the disk when its method returns (but see `confirm_turn`); if the method raises, nothing is changed.
    Every method raises StoreError if the file cannot be read or written, and SessionRefusedError if there is no such
    session or turn, or the session is closed.
    """

    def __init__(
        self,
        folder: Path,
        *,
        quota: Quota | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.quota = quota or Quota()
        self.database = Database(folder / FILE)
        self._clock = clock
        self._boot = boot_id()
        try:
            with self.database.transaction():
                turns.settle_not_done(self.database, self._boot)
        except StoreError:
            self.database.close()
            raise

    def open(
        self,
        bundle_name: str,
        bundle_fingerprint: str,
        seed: int,
        history_turns: int,
        start: StoredStart | None = None,
    ) -> tuple[StoredSession, str]:
        """A new session and its token, of which only a hash is stored; start: its turn 0. Raises StoreFullError."""
        self._make_room(ROW_BYTES + (0 if start is None else len(start.shot)))
        with self.database.transaction():
            session, token = self._insert(bundle_name, bundle_fingerprint, seed, history_turns)
            if start is not None:
                turns.insert_start(self.database, self._get(session).key, start)
        return self.get(session), token

    def resume(self, token: str) -> StoredSession:
        """The session of this token. Raises SessionRefusedError."""
        found = self._find("token_sha256", _hash(token))
        if found is None:
            raise SessionRefusedError("no session has this token", code="unknown_session", do="open a new one")
        session = _unless_closed(found).session
        try:
            with self.database.transaction():
                self._touch(found.key)
        except StoreError as error:  # a full disk must not lock a player out
            log.warning("the time of a session's last use could not be stored: %s", error)
        return session

    def get(self, session_id: str) -> StoredSession:
        """The session, closed or not."""
        return self._get(session_id).session

    def check(self, session_id: str, token: str) -> StoredSession:
        """The session, if the token is right and it is not closed. Raises SessionRefusedError."""
        found = self._find("id", session_id) or self._get(session_id)
        if not hmac.compare_digest(found.token_sha256, _hash(token)):
            raise SessionRefusedError(
                "the token belongs to another session", code="wrong_token", where=f"session {session_id}"
            )
        return _unless_closed(found).session

    def finish_turn(
        self,
        session_id: str,
        finished: StoredTurn,
        shots: Mapping[int, bytes],
        engines: str | None = None,
        *,
        done: bool = True,
    ) -> None:
        """Add the next turn in one transaction. shots: turn -> fp16 [226, D].

        engines: those that rendered it; None: unknown. done: False for a turn whose frames are still to come; if the
        process dies before `confirm_turn`, the turn is gone when the store is opened again.

        Does nothing if this very turn is stored already. Raises SessionRefusedError, also if it does not follow the
        last one or has the id of another turn, and StoreFullError.
        """
        key, _, session = self._playable(session_id)
        turn = finished.turn
        known = turns.find_turn(self.database, key, finished.turn_id)
        if known is not None and known.turn == turn:
            return
        if known is not None or turn != session.turns + 1:
            found = f"turn {turn}" if known is None else f"turn {turn} with the id of turn {known.turn}"
            raise _no_such_turn(session, "the turn does not follow the last one", found, f"turn {session.turns + 1}")
        sizes = [len(shot) for shot in shots.values()]
        checkpoint = session.history_turns * max(sizes, default=0) if turn % turns.CHECKPOINT_TURNS == 0 else 0
        self._make_room(sum(sizes) + checkpoint + ROW_BYTES, session_id)
        kept = turns.kept_shots(session.history_turns)
        with self.database.transaction():
            turns.insert_turn(self.database, key, finished, done)
            turns.write_shots(self.database, key, turn, shots, kept)
            turns.write_checkpoint(self.database, key, turn, session.history_turns)
            self.database.rows("UPDATE sessions SET engines = coalesce(?, engines) WHERE key = ?", engines, key)
            self._touch(key)

    def confirm_turn(self, session_id: str, turn: int) -> None:
        """Confirm a turn that was stored with `done` False. Its player may be notified once this returns.

        Does not wait for the disk, where the turn is already: what a process wrote outlives it, and a turn whose
        confirmation was lost in a power cut is kept (`settle_not_done`).
        """
        key = self._get(session_id).key
        with self.database.transaction(sync=self._boot is None):
            self.database.rows("UPDATE turns SET done = 1 WHERE session = ? AND turn = ?", key, turn)

    def add_shots(self, session_id: str, shots: Mapping[int, bytes]) -> None:
        """Store a window of shots of finished turns that were predicted again. Raises StoreFullError."""
        key, _, session = self._playable(session_id)
        self._make_room(sum(map(len, shots.values())) + ROW_BYTES, session_id)
        kept = turns.kept_shots(session.history_turns)
        earlier = {turn: shot for turn, shot in shots.items() if turn <= session.turns - kept}
        with self.database.transaction():
            turns.write_shots(self.database, key, session.turns, shots, kept)
            if earlier:
                turns.write_predicted(self.database, key, earlier, session.history_turns)

    def find_turn(self, session_id: str, turn_id: str) -> StoredTurn | None:
        """The finished turn with this id, if any."""
        return turns.find_turn(self.database, self._get(session_id).key, turn_id)

    def turns(self, session_id: str, first: int, last: int) -> list[StoredTurn]:
        """The stored turns from `first` to `last`, oldest first."""
        return turns.read_turns(self.database, self._get(session_id).key, first, last)

    def turn_context(self, session_id: str, turn: int) -> TurnContext:
        """The context of a finished turn or of the next one."""
        key, _, session = self._get(session_id)
        if not 1 <= turn <= session.turns + 1:
            raise _no_such_turn(session, "no such turn", f"turn {turn}", f"1 to {session.turns + 1}")
        return turns.read_history(self.database, key, turn, session.history_turns)

    def missing_shots(self, session_id: str, turn: int) -> int:
        """How many shots must be predicted again before a finished turn, or the next one, can be played."""
        key, _, session = self._get(session_id)
        return turn - 1 - turns.known_turns(self.database, key, turn - 1, session.history_turns)

    def rewind(self, session_id: str, turn: int) -> StoredSession:
        """Delete all turns after `turn` (0: the start)."""
        key, _, session = self._playable(session_id)
        _check_played(session, turn)
        with self.database.transaction():
            turns.delete_turns_after(self.database, key, turn)
            if not turn:
                self.database.rows("UPDATE sessions SET engines = NULL WHERE key = ?", key)
            self._touch(key)
        return self.get(session_id)

    def branch(self, session_id: str, turn: int, seed: int | None = None) -> tuple[StoredSession, str]:
        """A new session with this one's turns up to `turn`, and its token; this session does not change.

        seed: of the branch's next turns; None: this session's. Raises StoreFullError.
        """
        key, _, session = self._playable(session_id)
        _check_played(session, turn)
        self._make_room(turns.shot_bytes(self.database, key, turn) + ROW_BYTES * (1 + turn // 100), session_id)
        with self.database.transaction():
            new_seed = session.seed if seed is None else seed
            branch, token = self._insert(
                session.bundle_name, session.bundle_fingerprint, new_seed, session.history_turns
            )
            target = self._get(branch).key
            turns.copy_turns(self.database, key, target, turn)
            if turn:
                self.database.rows("UPDATE sessions SET engines = ? WHERE key = ?", session.engines, target)
        return self.get(branch), token

    def close_session(self, session_id: str) -> None:
        """End the session for good: deletes its shots; its texts stay until a quota needs the space."""
        key = self._get(session_id).key
        with self.database.transaction():
            turns.drop_shots(self.database, key)
            self.database.rows("DELETE FROM starts WHERE session = ?", key)
            self.database.rows("UPDATE sessions SET closed = 1 WHERE key = ?", key)
            self._touch(key)

    def count(self) -> int:
        """Number of sessions that are not closed."""
        return int(self.database.rows("SELECT count(*) FROM sessions WHERE NOT closed")[0][0])

    def sweep(self, now: float, in_use: Collection[str] = ()) -> SweepResult:
        """Delete what exceeds the quota, a few megabytes at a time. Call it again soon if the result says `more`.

        in_use: ids of sessions to leave alone: those used within the last hour by the monotonic clock, and those with
        a job.
        """
        return retention.sweep(self.database, self.quota, now, in_use)

    def close(self) -> None:
        """Close the file; the store cannot be used afterwards."""
        self.database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _insert(self, bundle_name: str, bundle_fingerprint: str, seed: int, history_turns: int) -> tuple[str, str]:
        session, token, now = secrets.token_hex(8), secrets.token_urlsafe(24), self._clock()
        self.database.rows(
            "INSERT INTO sessions (id, token_sha256, bundle_name, bundle_fingerprint, seed, history_turns,"
            " created, used) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            session,
            _hash(token),
            bundle_name,
            bundle_fingerprint,
            seed,
            history_turns,
            now,
            now,
        )
        return session, token

    def _find(self, column: str, value: str) -> _Found | None:
        rows = self.database.rows(f"{_SELECT} WHERE s.{column} = ?", value)
        if not rows:
            return None
        key, token, session, name, fingerprint, seed, window, closed, engines, turn, *character = rows[0]
        values = CharacterState() if turn is None else CharacterState(**dict(zip(VALUES, character, strict=True)))
        stored = StoredSession(session, name, fingerprint, seed, window, turn or 0, values, bool(closed), engines)
        return _Found(key, token, stored)

    def _get(self, session_id: str) -> _Found:
        found = self._find("id", session_id)
        if found is None:
            raise SessionRefusedError(
                "no such session", code="unknown_session", found=repr(session_id), do="open a new one"
            )
        return found

    def _playable(self, session_id: str) -> _Found:
        return _unless_closed(self._get(session_id))

    def _touch(self, key: int) -> None:
        self.database.rows("UPDATE sessions SET used = ? WHERE key = ?", self._clock(), key)

    def _make_room(self, wanted: int, session_id: str | None = None) -> None:
        """Delete idle sessions' shots if `wanted` bytes do not fit. Raises StoreFullError if that does not suffice."""
        missing = self.database.missing_bytes(self.quota, wanted)
        if missing > 0:
            with self.database.transaction():
                retention.drop_idle_shots(self.database, self.quota, wanted, self._clock(), [session_id or ""])
                retention.drop_checkpoints(self.database, self.quota, wanted)
            missing = self.database.missing_bytes(self.quota, wanted)
        if missing > 0:
            raise StoreFullError(
                "no space to store more",
                where=self.database.path,
                found=f"{missing / 2**20:.1f} MiB short",
                do="free disk space, raise the quota, or close sessions; finished turns are kept",
            )


def _unless_closed(found: _Found) -> _Found:
    if found.session.closed:
        where = f"session {found.session.id}"
        raise SessionRefusedError("the session is closed", code="session_closed", where=where, do="open a new one")
    return found


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _check_played(session: StoredSession, turn: int) -> None:
    if not 0 <= turn <= session.turns:
        raise _no_such_turn(session, "no such turn", f"turn {turn}", f"0 to {session.turns}")


def _no_such_turn(session: StoredSession, what: str, found: str, expected: str) -> SessionRefusedError:
    return SessionRefusedError(what, code="no_such_turn", where=f"session {session.id}", found=found, expected=expected)
