"""`animegamer-rt sessions move`: asks the server that uses a state folder to move sessions, or moves them itself.

A running server has its store locked, so it is asked by a file in its state folder, `moves/NAME.json`, and answers in
`moves/NAME.answer`. Whoever may write there may read the store, too. How a session is moved is in `store.moves`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from animegamer_rt.bundle.json_file import read_json
from animegamer_rt.errors import TRY_AGAIN, USER_ERROR, AnimeGamerError, ConfigError, StoreError
from animegamer_rt.serving.store import (
    FILE,
    SessionPlayingError,
    Store,
    StoreLockedError,
    UnknownSessionError,
    back_up,
    read_server_file,
)
from animegamer_rt.untrusted import path as readable_path

from .job_queue import JobQueue
from .scheduler import Scheduler

FOLDER, ASKED, ANSWERED, PART = "moves", ".json", ".answer", ".part"
ALL = "all"
LOOK_S, WAIT_S, PAUSE_S = 0.5, 60.0, 0.05
"""How often a server looks for requests; longest wait between two of its answers; how often they are looked for."""


class MoveRequests:
    """The server's side. One session is moved in a round of its loop, so that a player waits for one at most."""

    def __init__(self, folder: Path, store: Store, queue: JobQueue, scheduler: Scheduler) -> None:
        self._folder = folder / FOLDER
        self._store, self._queue, self._scheduler = store, queue, scheduler
        self._look_at = 0.0
        self._moving: Iterator[None] | None = None
        for path in self._files():  # nobody waits for their answers any more
            _remove(path)

    def look(self, now: float) -> None:
        """Go on with the request that there is, or look for one. Raises nothing."""
        if self._moving is not None and next(self._moving, self) is self:
            self._moving = None
        if self._moving is None and now >= self._look_at:
            self._look_at = now + LOOK_S
            asked = [path for path in self._files() if path.suffix == ASKED]
            self._moving = self._move(min(asked)) if asked else None

    def _files(self) -> list[Path]:
        try:
            return [self._folder / name for name in os.listdir(self._folder)]
        except OSError:
            return []

    def _move(self, path: Path) -> Iterator[None]:
        answers: list[dict[str, Any]] = []
        try:
            request = read_json(path)
            folder, sessions = Path(request["to"]), list(request["sessions"])
            for session in self._store.open_sessions() if sessions == [ALL] else sessions:
                answers.append(_try(lambda name=session: self._move_one(name, folder), session))  # type: ignore[misc]
                _write(path.with_suffix(ANSWERED), {"answers": answers, "over": False})
                yield
            _write(path.with_suffix(ANSWERED), {"answers": answers, "over": True})
        except (AnimeGamerError, OSError, ValueError, KeyError, TypeError) as error:
            with contextlib.suppress(OSError):
                refused = {"session": "", "refused": f"the request failed: {error}"}
                _write(path.with_suffix(ANSWERED), {"answers": [*answers, refused], "over": True})
        finally:
            _remove(path)

    def _move_one(self, session: str, folder: Path) -> str:
        job = self._queue.of_session(session)
        if job is not None:
            do = "try again when its turn is over, or stop it with cancel"
            raise SessionPlayingError(
                "the session is playing", where=f"session {session}", found=f"a {job.kind}", do=do
            )
        self._scheduler.removals.finish(session)
        departure = self._store.move(session, folder)
        self._scheduler.forget_ahead(session)
        self._queue.forget_session(session)
        return f"{departure.turns} turns, now at {departure.address}"


def sessions_command(options: argparse.Namespace) -> int:
    """`animegamer-rt sessions`: back sessions up, or move them; returns the exit code. Raises AnimeGamerError."""
    if options.action == "move":
        if options.to is None:
            raise ConfigError("sessions move needs a place", do="give the other server's state folder with --to")
        return move(options.names, options.state_dir, options.to)
    if options.to is not None or len(options.names) != 1:
        do = "leave --to out" if options.to is not None else "in quotes, if there are blanks in its name"
        raise ConfigError("sessions backup takes one new folder", found=" ".join(options.names), do=do)
    try:
        folder = readable_path(options.names[0])
    except ValueError as error:
        raise ConfigError(str(error)) from error
    copy = back_up(options.state_dir, folder)
    print(f"{copy.path}: {copy.sessions} sessions, {copy.turns} turns, {copy.bytes / 2**20:.1f} MiB, checked")
    print(f"play them: animegamer-rt serve --state-dir {shlex.quote(str(folder))}")
    return 0


def move(sessions: Sequence[str], state: Path, to: Path) -> int:
    """Move sessions, or `all`, from the state folder `state` to another; returns the exit code.

    TRY_AGAIN if some stay that can be moved later. Prints a line for each. Raises StoreError if there are no sessions,
    if `to` is no server's folder, or if their server does not answer.
    """
    if not (state / FILE).is_file():
        raise StoreError("no sessions to move", where=state, expected=FILE, do="give serve's --state-dir")
    to = to.absolute()
    read_server_file(to)
    try:
        with Store(state) as store:
            names = store.open_sessions() if list(sessions) == [ALL] else sessions
            answers = [_try(lambda name=name: _moved(store, name, to), name) for name in names]  # type: ignore[misc]
    except StoreLockedError:
        answers = _ask_server(sessions, state, to)
    for answer in answers:
        print(f"{answer['session']}: {answer.get('moved') or 'NOT MOVED: ' + answer['refused']}")
    stay = [answer.get("code", TRY_AGAIN) for answer in answers if "refused" in answer]
    print(f"{len(answers) - len(stay)} moved, {len(stay)} not")
    return 0 if not stay else TRY_AGAIN if set(stay) == {TRY_AGAIN} else USER_ERROR


def _moved(store: Store, session: str, to: Path) -> str:
    departure = store.move(session, to)
    return f"{departure.turns} turns, now at {departure.address}"


def _ask_server(sessions: Sequence[str], state: Path, to: Path) -> list[dict[str, Any]]:
    path = state / FOLDER / (secrets.token_hex(8) + ASKED)
    answer, seen = path.with_suffix(ANSWERED), 0
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        _write(path, {"sessions": list(sessions), "to": str(to)})
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            with contextlib.suppress(OSError, ValueError):
                answers = read_json(answer)
                if answers["over"]:
                    return list(answers["answers"])
                if len(answers["answers"]) > seen:
                    seen, until = len(answers["answers"]), time.monotonic() + WAIT_S
            time.sleep(PAUSE_S)
    except OSError as error:
        found, do = error.strerror or str(error), "run this as the user of the server"
        raise StoreError("the server cannot be asked", where=path.parent, found=found, do=do) from error
    finally:
        _remove(path)
        _remove(answer)
    what = "another program uses this state folder, and does not move sessions"
    do = "is it a server of an older version, or one that is stopped? sessions that were moved so far play there"
    raise StoreError(what, where=state, found=f"no answer for {WAIT_S:g} s", do=do)


def _try(action: Callable[[], str], session: str) -> dict[str, Any]:
    try:
        return {"session": session, "moved": action()}
    except StoreError as error:
        said = f"{error.text}; its id is in the server's log" if type(error) is UnknownSessionError else str(error)
        return {"session": session, "refused": said, "code": error.exit_code}


def _write(path: Path, record: dict[str, Any]) -> None:
    part = path.with_suffix(PART)
    part.write_text(json.dumps(record), encoding="utf-8")
    os.replace(part, path)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
