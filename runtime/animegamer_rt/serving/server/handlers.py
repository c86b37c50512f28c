"""Answers requests: one method for each message of the protocol.

Knows what clients may ask for. How jobs run is in `scheduler`, their limits in `job_queue`, what is stored in `store`.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from animegamer_rt.errors import AnimeGamerError, ProtocolError, StoreError
from animegamer_rt.serving.store import Store, StoredSession, StoredStart
from animegamer_rt.serving.wire import MAJOR, MAX_LISTED, MESSAGES, Buffer, Message, decode
from animegamer_rt.serving.wire.worker_messages import FrameOptions, GameStarted, StartJob

from .clients import Client
from .instruction_filter import InstructionFilter
from .job_errors import degraded
from .job_queue import JobQueue
from .jobs import Job, JobKind, PictureOpening, Subscriber
from .options import ServeOptions
from .scheduler import Scheduler
from .status import ServerStatus
from .workers import Workers

TURNS, CONTROL = "T", "C"
"""The two sockets, as the protocol's table names them."""

log = logging.getLogger(__name__)


class RequestHandlers:
    """Handles every request of every client: `handlers` maps the type of a message to its method."""

    def __init__(
        self,
        options: ServeOptions,
        status: ServerStatus,
        store: Store,
        queue: JobQueue,
        workers: Workers,
        scheduler: Scheduler,
        instruction_filter: InstructionFilter,
    ) -> None:
        self._options, self._status, self._store, self._queue = options, status, store, queue
        self._workers, self._scheduler, self._filter = workers, scheduler, instruction_filter
        self._bundle_name, self._fingerprint = status.bundle.manifest.name, status.bundle.fingerprint
        self.handlers: Mapping[str, Callable[[Client, Message], None]] = {
            "hello": self._hello,
            "open": self._open,
            "turn": self._turn,
            "replay": self._replay,
            "rewind": self._rewind,
            "branch": self._branch,
            "list": self._list,
            "export": self._export,
            "close": self._close,
            "cancel": self._cancel,
            "ping": self._ping,
            "status": self._send_status,
        }

    def handle(self, client: Client, socket: str, frames: Sequence[Buffer]) -> None:
        """Handle one message that came in on the turn socket or the control socket, whatever its bytes are."""
        message = Message("")
        try:
            message = decode(frames)
            if socket not in MESSAGES["client"][message.type].sockets:
                other = "turns, the port below" if socket == CONTROL else "control, the port above"
                raise ProtocolError(
                    "not a message for this socket", code="unknown_type", found=repr(message.type), do=f"ask {other}"
                )
            if socket == TURNS and client.frame_options is None and message.type != "hello":
                raise ProtocolError("this connection has not said hello", code="hello_first", do="send hello")
            self.handlers[message.type](client, message)
        except AnimeGamerError as error:
            if isinstance(error, StoreError) and error.code == StoreError.code:  # the client is not told where
                log.error("%s", error)
            parent = error.request if isinstance(error, ProtocolError) and error.request else message.id
            client.send_error(error, parent, message.session, message.turn)
        except Exception:  # one bad request must not end the server and everybody's games
            log.exception("a fault while answering %r", message.type)
            fault = ProtocolError("a fault of the server", code="internal", do="the operator finds it in the log")
            client.send_error(fault, message.id, message.session, message.turn)

    def _hello(self, client: Client, message: Message) -> None:
        fields = message.fields
        if MAJOR not in fields["versions"]:
            raise ProtocolError(
                "no version that both speak", code="version", found=fields["versions"], expected=MAJOR, do="update"
            )
        if client.frame_options is None and self._status.connections > self._options.connections:
            raise ProtocolError(
                "too many connections",
                code="too_many_sessions",
                expected=f"at most {self._options.connections}",
                do="close others, or try again later",
            )
        client.frame_options, client.minor = FrameOptions.from_fields(fields), fields.get("minor", 0)
        _reply(client, message, "welcome", self._status.welcome(client.minor))

    def _ping(self, client: Client, message: Message) -> None:
        _reply(client, message, "pong", {})

    def _send_status(self, client: Client, message: Message) -> None:
        _reply(client, message, "status", self._status.status())

    def _open(self, client: Client, message: Message) -> None:
        fields, bundle, now = message.fields, self._status.bundle, time.monotonic()
        self._queue.count_change(client, now)
        if "token" in fields:
            session, token = self._store.resume(fields["token"]), fields["token"]
            session.require_bundle(self._bundle_name, self._fingerprint)
            self._check_engines(session)
            self._queue.use_session(session.id, now, client)
        else:
            self._queue.check_sessions(now)
            seed = fields.get("seed", secrets.randbelow(2**31))
            window = fields.get("history_turns", bundle.manifest.compatibility.history_turns)
            if message.buffers:
                self._open_from_picture(client, message, seed, window)
                return
            session, token = self._store.open(self._bundle_name, self._fingerprint, seed, window)
            self._queue.use_session(session.id, now, client)
        self._opened(client, message, self._scheduler.as_done(session), token)

    def _open_from_picture(self, client: Client, message: Message, seed: int, window: int) -> None:
        """Have the worker make turn 0 of the picture; the session is opened once that is there."""
        if not self._status.starts_from_pictures:
            what = "this server's bundle, or its engines, cannot start a game from a picture"
            do = "open without one, or ask the operator for a bundle with its encoder parts"
            raise ProtocolError(what, code="no_encoder", found=self._bundle_name, do=do)
        if "motion" not in message.fields:
            do = "say what happens in the picture, for example: gently wave"
            raise ProtocolError("a picture comes with its motion", code="missing_field", where="open.motion", do=do)
        if window == 0:
            do = "ask for 1 turn or more"
            raise ProtocolError("no turn would see the picture", code="bad_field", where="open.history_turns", do=do)
        motion = self._filter.read(message.fields["motion"]).text
        self._check_server_state()
        self._queue.check_free_space(client)
        assert client.frame_options is not None
        now, name = time.monotonic(), f"start-{secrets.token_hex(8)}"
        job = Job(
            "start",
            name,
            Subscriber(client, message.id),
            client.frame_options,
            now,
            now + self._options.turn_deadline_s,
            opening=PictureOpening(
                message.buffers[0],
                StartJob(motion, window),
                partial(self._open_started, client, message, seed, window),
            ),
        )
        self._scheduler.admit(job, now)

    def _open_started(self, client: Client, message: Message, seed: int, window: int, started: GameStarted) -> None:
        """Open the session whose turn 0 the worker has made."""
        now = time.monotonic()
        self._queue.check_sessions(now)
        start = StoredStart(started.text, started.shot, started.scene)
        session, token = self._store.open(self._bundle_name, self._fingerprint, seed, window, start)
        self._queue.use_session(session.id, now, client)
        seen = None if started.scene is None else {**started.scene.to_fields(), "text": started.description}
        self._opened(client, message, session, token, seen)

    def _branch(self, client: Client, message: Message) -> None:
        session, turn = self._session(message), message.fields["turn"]
        if turn > session.turns:
            raise _no_such_turn(session, turn)
        self._queue.count_change(client, time.monotonic())
        self._queue.check_sessions(time.monotonic())
        other, token = self._store.branch(session.id, turn, message.fields.get("seed"))
        self._queue.use_session(other.id, time.monotonic(), client)
        self._opened(client, message, other, token)

    def _turn(self, client: Client, message: Message) -> None:
        session, fields = self._session(message), message.fields
        subscriber, turn_id = Subscriber(client, message.id), fields["turn_id"]
        running = self._queue.of_session(session.id)
        if running is not None and running.turn_id == turn_id:
            self._scheduler.subscribe(running, subscriber)
            return
        finished = self._store.find_turn(session.id, turn_id)
        if finished is not None and finished.turn <= session.turns:
            self._admit_replay(subscriber, session, finished.turn)
            return
        instruction = self._filter.read(fields["instruction"])
        requested_s = fields.get("deadline_s", math.inf)
        job = self._new_job("turn", session, subscriber, min(requested_s, self._options.turn_deadline_s))
        job.requested_s = requested_s
        self._queue.count_turn(session.id, job.accepted_at)
        job.turn, job.turn_id, job.instruction, job.seed = session.turns + 1, turn_id, instruction.text, session.seed
        self._scheduler.admit(job, job.accepted_at)

    def _replay(self, client: Client, message: Message) -> None:
        session, turn = self._session(message), message.turn
        assert turn is not None
        subscriber = Subscriber(client, message.id, message.fields.get("after_seq", -1))
        running = self._queue.of_session(session.id)
        if running is not None and running.turn == turn:
            self._scheduler.subscribe(running, subscriber)
            return
        self._admit_replay(subscriber, session, turn)

    def _rewind(self, client: Client, message: Message) -> None:
        session = self._session(message)
        self._check_no_job(session)
        self._queue.count_change(client, time.monotonic())
        self._scheduler.removals.finish(session.id)
        self._scheduler.forget_ahead(session.id)
        session = self._store.rewind(session.id, message.fields["turn"])
        fields = {"turns": session.turns, "character": asdict(session.character)}
        _reply(client, message, "rewound", fields, session.id)

    def _list(self, client: Client, message: Message) -> None:
        session = self._session(message)
        last = min(message.fields.get("before", session.turns + 1) - 1, session.turns)
        first = max(1, last - MAX_LISTED + 1)
        turns = [
            {
                "turn": turn.turn,
                "turn_id": turn.turn_id,
                "instruction": turn.instruction,
                **asdict(turn.game_state),
            }
            for turn in self._store.turns(session.id, first, last)
        ]
        _reply(client, message, "listed", {"turns": turns, "more": first > 1}, session.id)

    def _export(self, client: Client, message: Message) -> None:
        session = self._session(message)
        if self._options.ray is not None:
            what, do = (
                "this server cannot export: its workers are on other machines",
                "look in welcome.capabilities first",
            )
            raise ProtocolError(what, code="unknown_type", do=do)
        # Every turn of the game is rendered again, so it may take as long as all of them may.
        seconds = self._options.turn_deadline_s * max(1, session.turns)
        job = self._new_job("export", session, Subscriber(client, message.id), seconds)
        self._queue.count_turn(session.id, job.accepted_at)
        self._scheduler.admit(job, job.accepted_at)

    def _close(self, client: Client, message: Message) -> None:
        session = self._session(message)
        self._check_no_job(session)
        self._store.close_session(session.id)
        self._scheduler.forget_ahead(session.id)
        self._queue.forget_session(session.id)
        _reply(client, message, "closed", {}, session.id)

    def _cancel(self, client: Client, message: Message) -> None:
        session = self._session(message)
        running = self._scheduler.cancel(session.id)
        _reply(client, message, "cancelling", {"running": running}, session.id)

    def _session(self, message: Message) -> StoredSession:
        """The session of a request, with the turns that are done. Raises StoreError, also for a wrong token."""
        assert message.session is not None
        session = self._store.check(message.session, message.fields["token"])
        session.require_bundle(self._bundle_name, self._fingerprint)
        return self._scheduler.as_done(session)

    def _admit_replay(self, subscriber: Subscriber, session: StoredSession, turn: int) -> None:
        """Have a finished turn rendered again: the same bytes, and nothing is added to the session."""
        found = self._store.turns(session.id, turn, turn)
        if not found or turn > session.turns:
            raise _no_such_turn(session, turn)
        played, job = found[0], self._new_job("replay", session, subscriber, self._options.turn_deadline_s)
        job.turn, job.turn_id, job.instruction, job.seed = turn, played.turn_id, played.instruction, played.seed
        self._scheduler.admit(job, job.accepted_at)

    def _new_job(self, kind: JobKind, session: StoredSession, subscriber: Subscriber, seconds: float) -> Job:
        """A job of the session, to be done within `seconds`. Raises ProtocolError if it cannot have one now."""
        now, frame_options = time.monotonic(), subscriber.client.frame_options
        assert frame_options is not None
        self._check_no_job(session)
        self._check_server_state()
        self._check_engines(session)
        self._queue.use_session(session.id, now, subscriber.client)
        self._queue.check_free_space(subscriber.client)
        return Job(kind, session.id, subscriber, frame_options, now, now + seconds)

    def _check_no_job(self, session: StoredSession) -> None:
        running = self._queue.of_session(session.id)
        if running is not None:
            what = "the session's export is under way" if running.kind == "export" else "the session's turn is not over"
            raise ProtocolError(what, code="turn_running", do="wait for its end, or send cancel on the control socket")

    def _check_engines(self, session: StoredSession) -> None:
        """Raises StoreError if other engines made the session's turns, unless the operator allows that."""
        if not self._options.continue_on_other_engines:
            session.require_engines(self._workers.engines)

    def _check_server_state(self) -> None:
        """Raises ProtocolError when the server takes no jobs now."""
        state = self._status.state
        if state == "draining":
            raise ProtocolError("the server is stopping", code="draining", do="connect again later; sessions are kept")
        if state == "starting":
            raise ProtocolError("the engines are still loading", code="starting", do="try again in a moment")
        if state == "degraded":
            raise degraded(self._workers)

    def _opened(
        self, client: Client, message: Message, session: StoredSession, token: str, seen: dict[str, Any] | None = None
    ) -> None:
        fields: dict[str, Any] = {
            "token": token,
            "seed": session.seed,
            "history_turns": session.history_turns,
            "turns": session.turns,
            "character": asdict(session.character),
        }
        running = self._queue.of_session(session.id)
        if running is not None and running.turn is not None:
            fields["running"] = {"turn": running.turn, "turn_id": running.turn_id}
        if seen is not None:
            fields["understood"] = seen
        _reply(client, message, "opened", fields, session.id)


def _no_such_turn(session: StoredSession, turn: int) -> ProtocolError:
    expected = f"at most {session.turns}"
    return ProtocolError("no such turn", code="no_such_turn", found=f"turn {turn}", expected=expected)


def _reply(client: Client, message: Message, type: str, fields: dict[str, Any], session: str | None = None) -> None:
    client.send(Message(type, fields, parent=message.id, session=session))
