"""Connects jobs to the store: what a worker needs for a job, and how a turn gets onto the disk.

A turn is stored while its frames are decoded, and confirmed after the last one. One that will not be confirmed is
removed, at once or as soon as the disk is writable again; until then it is hidden, as its player was sent an error.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from animegamer_rt.errors import ProtocolError, StoreError
from animegamer_rt.profiling.process_memory import release_free
from animegamer_rt.serving.store.database import Quota
from animegamer_rt.serving.store.store import Store
from animegamer_rt.serving.store.turns import CHECKPOINT_TURNS, StoredSession, StoredTurn
from animegamer_rt.serving.wire.codec import Message
from animegamer_rt.serving.wire.worker_messages import JOB, ExportJob, PredictJob, TurnJob, TurnResult
from animegamer_rt.state.game import CharacterState

from .jobs import Export, Job, Rendered, Start, Turn
from .local_host import open_log
from .options import ServeOptions

EXPORTS, PARTIAL = "exports", ".partial"
"""Exported games are `exports/SESSION-N` in the state folder, with N counted up from 1. Unfinished ones are hidden."""
LOGS = ("worker.log", "worker-*.log", "ray.log")
"""Of other processes, in the state folder; another log there is somebody else's."""
EXPORTS_KEPT = 3
"""Exported games kept per session. Beyond that the oldest is deleted: nobody can fill the disk."""
SWEEP_S, SWEEP_MORE_S = 60.0, 1.0
"""Interval between sweeps of the store, and after a sweep that left some to delete."""

log = logging.getLogger(__name__)


class Storage:
    """The sessions and the exported games in a state folder."""

    def __init__(self, store: Store, state_dir: Path) -> None:
        self.store = store
        self._exports = state_dir.resolve() / EXPORTS
        self._done_turns: dict[str, int] = {}
        """Session whose last stored turn is not done -> its turns without that one."""
        self._to_remove: set[str] = set()
        """Sessions whose last stored turn will never be done."""
        self._sweep_at = 0.0
        for folder in _found(self._exports, f".*{PARTIAL}"):  # left by a killed server
            _delete(folder)

    def as_done(self, session: StoredSession) -> StoredSession:
        """The session without a turn that is stored but not done. Raises StoreError."""
        turns = self._done_turns.get(session.id)
        if turns is None:
            return session
        last = self.store.turns(session.id, turns, turns)
        return replace(session, turns=turns, character=last[0].character if last else CharacterState())

    def game(self, session: str, last: int) -> tuple[StoredSession, list[StoredTurn]]:
        """A session and its last turns, oldest first. Raises StoreError."""
        stored = self.store.get(session)
        return stored, self.store.turns(session, stored.turns - last + 1, stored.turns)

    def job_message(self, job: Job, slice_turns: int | None = None) -> Message:
        """A job's message for a worker; if it lacks more shots than `slice_turns`, that of a part of their prediction.

        Raises StoreError, or ProtocolError if the session moved on without it.
        """
        if isinstance(job, Start):
            return Message(JOB, job.work.to_fields(), id=job.id, session=job.session)
        self.remove_now(job.session)
        assert isinstance(job, Rendered)
        if isinstance(job, Export):
            job.folder = job.folder or self._new_folder(job.session)
            for turn in self.store.turns(job.session, job.turn, job.turn):
                job.instruction, job.seed, job.noise_version = turn.instruction, turn.seed, turn.noise_version
        missing = self.missing_shots(job)
        known = job.turn - 1 - missing
        part = min(slice_turns or missing, CHECKPOINT_TURNS - known % CHECKPOINT_TURNS)
        job.predicts = slice_turns is not None and part < missing
        return self._turn_message(job, known + part + 1 if job.predicts else job.turn)

    def missing_shots(self, job: Rendered) -> int:
        """How many earlier turns must be predicted again for it. Raises StoreError."""
        return self.store.missing_shots(job.session, job.turn)

    def store_turn(self, job: Turn, result: TurnResult) -> None:
        """Store a turn whose frames are still to come. Raises StoreError."""
        turn = StoredTurn(
            job.turn,
            job.turn_id,
            job.instruction,
            job.seed,
            result.game_state,
            result.character,
            result.scene,
            job.noise_version,
        )
        try:
            self.store.finish_turn(job.session, turn, result.shots, result.engines, done=False)
        except StoreError as error:
            log.error("a turn could not be stored: %s", error)
            raise
        self._done_turns[job.session] = job.turn - 1

    def add_shots(self, job: Rendered, shots: Mapping[int, bytes]) -> None:
        """Store shots that were predicted again, at once: even if the turn fails, nobody waits for them twice.

        Raises StoreError if they are a part on which the next one is to build.
        """
        try:
            self.store.add_shots(job.session, shots)
        except StoreError as error:
            log.error("shots could not be stored: %s", error)
            if job.predicts:
                raise

    def confirm_turn(self, job: Turn) -> None:
        """All frames of a stored turn were sent: mark it done. Raises StoreError."""
        self.store.confirm_turn(job.session, job.turn)
        del self._done_turns[job.session]

    def remove_turn(self, session: str) -> None:
        """Remove the session's last turn, which was stored but will not be done, now or later."""
        self._to_remove.add(session)
        try:
            self.remove_now(session)
        except StoreError as error:
            log.error("an unfinished turn could not be removed yet: %s", error)

    def remove_now(self, session: str) -> None:
        """Remove the session's turn if a removal is pending. Raises StoreError if that is not possible yet."""
        if session in self._to_remove:
            self.store.rewind(session, self._done_turns[session])
            self._forget_removal(session)

    def remove_all(self) -> None:
        """Carry out all pending removals, as far as possible."""
        for session in list(self._to_remove):
            try:
                self.remove_now(session)
            except StoreError as error:
                if error.code != StoreError.code:  # the session is gone or closed
                    self._forget_removal(session)

    def finished_turns(self, session: str) -> int:
        """How many turns of a session are done. Raises StoreError."""
        return self.as_done(self.store.get(session)).turns

    def complete_export(self, job: Export) -> Path:
        """Rename the folder of a complete export and return it; deletes the oldest exports. Raises StoreError."""
        assert job.folder is not None
        named = job.folder.with_name(job.folder.name.removeprefix(".").removesuffix(PARTIAL))
        try:
            job.folder = job.folder.rename(named)
        except OSError as error:
            raise _not_written(named, error) from error
        for folder in self._exports_of(job.session)[:-EXPORTS_KEPT]:
            _delete(folder)
        return job.folder

    def drop_export(self, job: Export) -> None:
        """Delete the output of a failed export: half a game is useless."""
        if job.folder is not None:
            _delete(job.folder)

    def sweeps(self, now: float) -> bool:
        """Whether a sweep is due."""
        return now >= self._sweep_at

    def sweep(self, in_use: Collection[str], now: float) -> None:
        """Carry out pending removals, empty long logs, and delete sessions beyond the quota with their exports.

        in_use: sessions to leave alone. now: of the monotonic clock.
        """
        release_free()
        for pattern in LOGS:
            for path in _found(self._exports.parent, pattern):
                with contextlib.suppress(OSError):
                    open_log(path).close()  # emptied if it is long
        self.remove_all()
        self._sweep_at = now + SWEEP_S
        try:
            swept = self.store.sweep(time.time(), in_use)
        except StoreError as error:
            log.error("the sweep of old sessions failed: %s", error)
            return
        for session in swept.removed:
            for folder in _found(self._exports, f"{session}-*"):
                _delete(folder)
        if swept.more:
            self._sweep_at = now + SWEEP_MORE_S
        if swept.removed or swept.shots_dropped:
            removed, dropped, mib = len(swept.removed), len(swept.shots_dropped), 2**20
            freed, stored = swept.freed_bytes / mib, swept.stored_bytes / mib
            text = "swept: %d sessions removed, shots of %d dropped, %.1f MiB freed, %.1f MiB stored"
            log.info(text, removed, dropped, freed, stored)

    def _forget_removal(self, session: str) -> None:
        self._to_remove.discard(session)
        self._done_turns.pop(session, None)

    def _turn_message(self, job: Rendered, number: int) -> Message:
        """Of a turn, or of the prediction of those before turn `number`."""
        session = self.store.get(job.session)
        if isinstance(job, Turn) and job.turn != session.turns + 1:
            raise ProtocolError("the session has moved on", code="no_such_turn", found=f"turn {job.turn}")
        context = self.store.turn_context(job.session, number)
        finished = [] if isinstance(job, Turn) else self.store.turns(job.session, job.turn, job.turn)
        kind: Callable[..., TurnJob] = PredictJob if job.predicts else TurnJob
        if isinstance(job, Export) and not job.predicts:
            kind = partial(ExportJob, folder=str(job.folder), game_seed=session.seed, turns=job.turns)
        turn = kind(
            job.instruction,
            job.seed,
            session.history_turns,
            context.character,
            omitted_turns=context.first,
            history=context.log,
            shots=context.shots if context.start is None else {0: context.start.shot, **context.shots},
            frames=job.frame_options,
            scene=context.scene,
            start_text=None if context.start is None else context.start.text,
            shown=finished[0].scene if finished else None,
            noise_version=job.noise_version,
        )
        return Message(JOB, turn.to_fields(), id=job.id, session=job.session, turn=number)

    def _new_folder(self, session: str) -> Path:
        earlier = self._exports_of(session)
        try:
            self._exports.mkdir(mode=0o700, exist_ok=True)  # a state folder that was moved away may come back
        except OSError as error:
            raise _not_written(self._exports, error) from error
        return self._exports / f".{session}-{_number(earlier[-1]) + 1 if earlier else 1}{PARTIAL}"

    def _exports_of(self, session: str) -> list[Path]:
        """The oldest first."""
        return sorted((folder for folder in _found(self._exports, f"{session}-*") if _number(folder)), key=_number)


def open_store(options: ServeOptions) -> Store:
    """The store in the configured state folder. Raises ConfigError, StoreError."""
    max_age_s = None if options.keep_days is None else options.keep_days * 86_400
    quota = Quota(max_bytes=int(options.quota_gib * 2**30), max_age_s=max_age_s)
    return Store(options.state_dir, quota=quota)


def _found(folder: Path, pattern: str) -> list[Path]:
    """What is there; nothing if the folder cannot be read now, as without a free descriptor."""
    try:
        return list(folder.glob(pattern))
    except OSError:
        return []


def _delete(folder: Path) -> None:
    """Delete one exported game, as far as possible."""
    shutil.rmtree(folder, ignore_errors=True)


def _not_written(path: Path, error: OSError) -> StoreError:
    found, do = error.strerror or str(error), "free disk space there, or make it writable"
    return StoreError("the export cannot be written", where=path, found=found, do=do)


def _number(folder: Path) -> int:
    number = folder.name.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0
