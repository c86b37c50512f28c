"""Answers requests: one method per message of the protocol, each given what it may rely on, or an error with its code.

Knows what clients may ask for; how jobs run is `turns`', who gets one is `admission`'s, what is kept is `store`'s.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from animegamer_rt.errors import AnimeGamerError, ProtocolError
from animegamer_rt.serving.store import Store, StoredSession
from animegamer_rt.serving.wire import MAJOR, MESSAGES, MOST_LISTED, Buffer, Message, decode
from animegamer_rt.state.game import CharacterState

from .clients import Client, FrameOptions
from .instruction_filter import InstructionFilter
from .job_queue import JobQueue
from .jobs import Job, Subscriber
from .options import ServeOptions
from .scheduler import Scheduler, degraded
from .status import ServerStatus
from .worker_process import WorkerProcess

TURNS, CONTROL = "T", "C"
"""The two sockets, as the protocol's table names them."""

log = logging.getLogger(__name__)


class RequestHandlers:
    """All requests of all clients."""

    def __init__(
        self,
        options: ServeOptions,
        facts: ServerStatus,
        store: Store,
        admission: JobQueue,
        supervisor: WorkerProcess,
        turns: Scheduler,
        words: InstructionFilter,
    ) -> None:
        self._options, self._facts, self._store, self._admission = options, facts, store, admission
        self._supervisor, self._turns, self._words = supervisor, turns, words

    def answer(self, client: Client, socket: str, frames: Sequence[Buffer]) -> None:
        """Answer one message that came in on the turn socket or the control socket, whatever it is."""
        message = Message("")
        try:
            message = decode(frames)
            if socket not in MESSAGES["client"][message.type].sockets:
                other = "turns, the port below" if socket == CONTROL else "control, the port above"
                raise ProtocolError(
                    "not a message for this socket", code="unknown_type", found=repr(message.type), do=f"ask {other}"
                )
            if socket == TURNS and client.pictures is None and message.type != "hello":
                raise ProtocolError("this connection has not said hello", code="hello_first", do="send hello")
            getattr(self, f"_{message.type}")(client, message)
        except AnimeGamerError as error:
            parent = error.request if isinstance(error, ProtocolError) and error.request else message.id
            client.refuse(error, parent, message.session, message.turn)
        except Exception:  # one bad request must not end the server and everybody's games
            log.exception("a fault while answering %r", message.type)
            fault = ProtocolError("a fault of the server", code="internal", do="the operator finds it in the log")
            client.refuse(fault, message.id, message.session, message.turn)

    def _hello(self, client: Client, message: Message) -> None:
        fields = message.fields
        if MAJOR not in fields["versions"]:
            raise ProtocolError(
                "no version that both speak", code="version", found=fields["versions"], expected=MAJOR, do="update"
            )
        if client.pictures is None and self._facts.connections > self._options.connections:
            raise ProtocolError(
                "too many connections",
                code="too_many_sessions",
                expected=f"at most {self._options.connections}",
                do="close others, or try again later",
            )
        names = FrameOptions.__dataclass_fields__
        client.pictures = FrameOptions(**{name: value for name, value in fields.items() if name in names})
        _reply(client, message, "welcome", self._facts.welcome())

    def _ping(self, client: Client, message: Message) -> None:
        _reply(client, message, "pong", {})

    def _status(self, client: Client, message: Message) -> None:
        _reply(client, message, "status", self._facts.status())

    def _open(self, client: Client, message: Message) -> None:
        fields, bundle = message.fields, self._facts.bundle
        now, name = time.monotonic(), bundle.manifest.name
        if "token" in fields:
            session, token = self._store.resume(fields["token"]), fields["token"]
            session.require_bundle(name, bundle.fingerprint)
            self._admission.use_session(session.id, now)
        else:
            self._admission.check_sessions(now)
            seed = fields.get("seed", secrets.randbelow(2**31))
            window = fields.get("history_turns", bundle.manifest.compatibility.history_turns)
            session, token = self._store.open(name, bundle.fingerprint, seed, window)
            self._admission.use_session(session.id, now)
        self._opened(client, message, self._as_done(session), token)

    def _branch(self, client: Client, message: Message) -> None:
        session, turn = self._session(message), message.fields["turn"]
        if turn > session.turns:
            raise _no_such_turn(session, turn)
        self._admission.check_sessions(time.monotonic())
        other, token = self._store.branch(session.id, turn, message.fields.get("seed"))
        self._admission.use_session(other.id, time.monotonic())
        self._opened(client, message, other, token)

    def _turn(self, client: Client, message: Message) -> None:
        session, fields = self._session(message), message.fields
        listener, turn_id = Subscriber(client, message.id), fields["turn_id"]
        running = self._admission.of_session(session.id)
        if running is not None and running.turn_id == turn_id:
            running.attach(listener)
            return
        finished = self._store.find_turn(session.id, turn_id)
        if finished is not None:
            self._play_again(listener, session, finished.turn)
            return
        instruction = self._words.read(fields["instruction"])
        asked_s = fields.get("deadline_s", math.inf)
        job = self._job("turn", session, listener, min(asked_s, self._options.turn_deadline_s))
        job.asked_s = asked_s
        self._admission.check_rate(session.id, job.accepted_at)
        job.turn, job.turn_id, job.instruction, job.seed = session.turns + 1, turn_id, instruction.text, session.seed
        self._turns.admit(job, job.accepted_at)

    def _replay(self, client: Client, message: Message) -> None:
        session, turn = self._session(message), message.turn
        assert turn is not None
        listener = Subscriber(client, message.id, message.fields.get("after_seq", -1))
        running = self._admission.of_session(session.id)
        if running is not None and running.turn == turn:
            running.attach(listener)
            return
        self._play_again(listener, session, turn)

    def _rewind(self, client: Client, message: Message) -> None:
        session = self._session(message)
        self._check_free(session)
        session = self._store.rewind(session.id, message.fields["turn"])
        fields = {"turns": session.turns, "character": asdict(session.character)}
        _reply(client, message, "rewound", fields, session.id)

    def _list(self, client: Client, message: Message) -> None:
        session = self._session(message)
        last = min(message.fields.get("before", session.turns + 1) - 1, session.turns)
        first = max(1, last - MOST_LISTED + 1)
        turns = [
            {"turn": turn.turn, "turn_id": turn.turn_id, "instruction": turn.instruction, **asdict(turn.game_state)}
            for turn in self._store.turns(session.id, first, last)
        ]
        _reply(client, message, "listed", {"turns": turns, "more": first > 1}, session.id)

    def _export(self, client: Client, message: Message) -> None:
        session = self._session(message)
        # Every turn of the game is rendered again, so it may take as long as all of them may.
        seconds = self._options.turn_deadline_s * max(1, session.turns)
        job = self._job("export", session, Subscriber(client, message.id), seconds)
        self._admission.check_rate(session.id, job.accepted_at)
        self._turns.admit(job, job.accepted_at)

    def _close(self, client: Client, message: Message) -> None:
        session = self._session(message)
        self._check_free(session)
        self._store.close(session.id)
        self._admission.leave(session.id)
        _reply(client, message, "closed", {}, session.id)

    def _cancel(self, client: Client, message: Message) -> None:
        session = self._session(message)
        running = self._turns.cancel(session.id)
        _reply(client, message, "cancelling", {"running": running}, session.id)

    def _session(self, message: Message) -> StoredSession:
        """The session that a request is for, its token checked, as of its last `done`. Raises StoreError."""
        assert message.session is not None
        session = self._store.check(message.session, message.fields["token"])
        session.require_bundle(self._facts.bundle.manifest.name, self._facts.bundle.fingerprint)
        return self._as_done(session)

    def _as_done(self, session: StoredSession) -> StoredSession:
        """The session without a turn that is written down but whose pictures still come: it may yet be taken back."""
        running = self._admission.of_session(session.id)
        if running is None or not running.kept:
            return session
        last = self._store.turns(session.id, session.turns - 1, session.turns - 1)
        return replace(session, turns=session.turns - 1, character=last[0].character if last else CharacterState())

    def _play_again(self, listener: Subscriber, session: StoredSession, turn: int) -> None:
        """A finished turn's events once more, rendered anew: the same bytes, and nothing is added to the session."""
        found = self._store.turns(session.id, turn, turn)
        if not found:
            raise _no_such_turn(session, turn)
        played, job = found[0], self._job("replay", session, listener, self._options.turn_deadline_s)
        job.turn, job.turn_id, job.instruction, job.seed = turn, played.turn_id, played.instruction, played.seed
        self._turns.admit(job, job.accepted_at)

    def _job(self, kind: str, session: StoredSession, listener: Subscriber, seconds: float) -> Job:
        """A job of the session, to be done within `seconds`. Raises what keeps the session from having one now."""
        now, pictures = time.monotonic(), listener.client.pictures
        assert pictures is not None
        self._check_free(session)
        self._check_open(session, now)
        return Job(kind, session.id, listener, pictures, now, now + seconds)

    def _check_free(self, session: StoredSession) -> None:
        running = self._admission.of_session(session.id)
        if running is not None:
            what = "the session's export is under way" if running.kind == "export" else "the session's turn is not over"
            raise ProtocolError(what, code="turn_running", do="wait for its end, or send cancel on the control socket")

    def _check_open(self, session: StoredSession, now: float) -> None:
        """Raises what keeps any job of the session from being taken now."""
        state = self._facts.state
        if state == "draining":
            raise ProtocolError("the server is stopping", code="draining", do="connect again later; sessions are kept")
        if state == "starting":
            raise ProtocolError("the engines are still loading", code="starting", do="try again in a moment")
        if state == "degraded":
            raise degraded(self._supervisor)
        self._admission.use_session(session.id, now)
        self._admission.check_room()

    def _opened(self, client: Client, message: Message, session: StoredSession, token: str) -> None:
        fields: dict[str, Any] = {
            "token": token,
            "seed": session.seed,
            "history_turns": session.history_turns,
            "turns": session.turns,
            "character": asdict(session.character),
        }
        running = self._admission.of_session(session.id)
        if running is not None and running.turn is not None:
            fields["running"] = {"turn": running.turn, "turn_id": running.turn_id}
        _reply(client, message, "opened", fields, session.id)


def _no_such_turn(session: StoredSession, turn: int) -> ProtocolError:
    expected = f"at most {session.turns}"
    return ProtocolError("no such turn", code="no_such_turn", found=f"turn {turn}", expected=expected)


def _reply(client: Client, message: Message, type: str, fields: dict[str, Any], session: str | None = None) -> None:
    client.send(Message(type, fields, parent=message.id, session=session))
