"""Request handlers: one method per message of the protocol, returning effects, including the reply.

How jobs run is in `core`, their limits in `queue`.
"""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from animegamer_rt.errors import AnimeGamerError, ProtocolError, StoreError
from animegamer_rt.serving.store.turns import CHECKPOINT_TURNS, StoredSession, StoredStart
from animegamer_rt.serving.wire.codec import MAJOR, Buffer, Message, decode
from animegamer_rt.serving.wire.schema import MAX_LISTED, MESSAGES
from animegamer_rt.serving.wire.worker_messages import FrameOptions, GameStarted, StartJob

from . import rehearsal
from .clients import CONTROL, TURNS, Client
from .core import ServerCore
from .effects import Effect, Logged, Send, SendError
from .instruction_filter import InstructionFilter
from .jobs import Export, Played, Replay, Start, Subscriber, Turn, fault
from .options import ServeOptions
from .status import ServerStatus
from .storage import Storage

CHANGES_PER_TEXT = 0.1
"""What comparing a wish with a block list of thousands of words costs, in changes (`JobQueue.count_change`)."""

Handler = Callable[[Client, Message, float], list[Effect]]


class Requests:
    """Handles every request of every client. Times are of the monotonic clock."""

    def __init__(
        self,
        options: ServeOptions,
        status: ServerStatus,
        storage: Storage,
        core: ServerCore,
        instruction_filter: InstructionFilter,
    ) -> None:
        self._options, self._status, self._filter = options, status, instruction_filter
        self._rehearses = options.engines.simulated
        self._storage, self._core = storage, core
        self._bundle, self._fingerprint = status.bundle, status.bundle.fingerprint
        self.handlers: Mapping[str, Handler] = {
            "hello": self._hello,
            "open": self._open,
            "turn": self._turn,
            "wish": self._wish,
            "replay": self._replay,
            "rewind": self._rewind,
            "branch": self._branch,
            "list": self._list,
            "export": self._export,
            "close": self._close,
            "cancel": self._cancel,
            "ping": lambda client, message, _: _reply(client, message, "pong", {}),
            "status": lambda client, message, _: _reply(client, message, "status", self._status.status()),
        }

    def handle(self, client: Client, socket: str, frames: Sequence[Buffer], now: float) -> list[Effect]:
        """Handle one message from the turn or control socket, whatever its bytes are."""
        message = Message("")
        try:
            message = decode(frames)
            if socket not in MESSAGES["client"][message.type].sockets:
                other = "turns, the port below" if socket == CONTROL else "control, the port above"
                raise ProtocolError(
                    "not a message for this socket", code="unknown_type", found=repr(message.type), do=f"ask {other}"
                )
            if socket == TURNS and client.frame_options is None and message.type != "hello":
                raise ProtocolError("no hello on this connection yet", code="hello_first", do="send hello")
            return self.handlers[message.type](client, message, now)
        except AnimeGamerError as error:
            parent = error.request if isinstance(error, ProtocolError) and error.request else message.id
            failed: list[Effect] = [SendError(client, error, parent, message.session, message.turn)]
            if isinstance(error, StoreError) and error.code == StoreError.code:  # hides the path from the client
                failed.append(Logged(logging.ERROR, str(error)))
            return failed
        except Exception as error:  # noqa: BLE001  one bad request must not end the server and everybody's games
            text = f"internal error while handling {message.type!r}"
            answer = SendError(client, fault(), message.id, message.session, message.turn)
            return [Logged(logging.ERROR, text, error), answer]

    def open_started(self, job: Start, started: GameStarted, now: float) -> list[Effect]:
        """Open the session whose turn 0 a worker has made from a picture."""
        client, parent = job.subscriber.client, job.subscriber.parent
        try:
            self._core.queue.check_sessions(now, client)
            start = StoredStart(started.text, started.shot, started.scene)
            session, token = self._new_session(client, job.seed, job.work.history_turns, now, start)
        except AnimeGamerError as error:
            return [SendError(client, error, parent)]
        seen = None if started.scene is None else {**started.scene.to_fields(), "text": started.description}
        return self._opened(client, parent, session, token, seen)

    def _hello(self, client: Client, message: Message, now: float) -> list[Effect]:
        fields = message.fields
        if MAJOR not in fields["versions"]:
            raise ProtocolError(
                "no common protocol version", code="version", found=fields["versions"], expected=MAJOR, do="update"
            )
        if client.refused:
            raise ProtocolError(
                "too many connections",
                code="too_many_sessions",
                expected=f"at most {self._options.connections}",
                do="close others, or try again later",
            )
        client.frame_options, client.minor = FrameOptions.from_fields(fields), fields.get("minor", 0)
        return _reply(client, message, "welcome", self._status.welcome(client.minor))

    def _open(self, client: Client, message: Message, now: float) -> list[Effect]:
        fields = message.fields
        self._core.queue.count_change(client.holder, now)
        if "token" in fields:
            session, token = self._storage.store.resume(fields["token"]), fields["token"]
            self._check_bundle(session)
            self._check_engines(session)
            self._core.queue.use_session(session.id, now, client)
            return self._opened(client, message.id, self._storage.as_done(session), token)
        self._core.queue.check_sessions(now, client)
        seed = fields.get("seed", secrets.randbelow(2**31))
        window = fields.get("history_turns", self._bundle.manifest.compatibility.history_turns)
        if message.buffers:
            return self._start(client, message, seed, window, now)
        return self._opened(client, message.id, *self._new_session(client, seed, window, now))

    def _start(self, client: Client, message: Message, seed: int, window: int, now: float) -> list[Effect]:
        """Have a worker make turn 0 from the picture; the session is opened afterwards."""
        if not self._status.starts_from_pictures:
            what = "this server's bundle or engines cannot start a game from a picture"
            do = "open without a picture, or ask the operator for a bundle with encoder parts"
            raise ProtocolError(what, code="no_encoder", found=self._bundle.manifest.name, do=do)
        if "motion" not in message.fields:
            do = "add what happens in the picture, for example: gently wave"
            raise ProtocolError("a picture needs a motion", code="missing_field", where="open.motion", do=do)
        if window == 0:
            do = "set it to 1 turn or more"
            raise ProtocolError("no turn would see the picture", code="bad_field", where="open.history_turns", do=do)
        motion = self._filter.read(message.fields["motion"]).text
        self._core.dispatch.fleet.check_ready()
        self._core.queue.check_free_space(client.holder)
        job = Start(
            session=f"start-{secrets.token_hex(8)}",
            subscriber=Subscriber(client, message.id),
            accepted_at=now,
            deadline_at=now + self._options.turn_deadline_s,
            work=StartJob(motion, window, bytes(message.buffers[0])),
            seed=seed,
        )
        return self._core.admit(job, now)

    def _branch(self, client: Client, message: Message, now: float) -> list[Effect]:
        session, turn = self._session(message), message.fields["turn"]
        if turn > session.turns:
            raise _no_such_turn(session, turn)
        self._core.queue.count_change(client.holder, now, 1 + turn / CHECKPOINT_TURNS)
        self._core.queue.check_sessions(now, client)
        other, token = self._storage.store.branch(session.id, turn, message.fields.get("seed"))
        self._core.queue.use_session(other.id, now, client)
        return self._opened(client, message.id, other, token)

    def _turn(self, client: Client, message: Message, now: float) -> list[Effect]:
        session, fields = self._session(message), message.fields
        subscriber, turn_id = Subscriber(client, message.id), fields["turn_id"]
        running = self._core.queue.of_session(session.id)
        if isinstance(running, Played) and running.turn_id == turn_id:
            return self._core.subscribe(running, subscriber)
        finished = self._storage.store.find_turn(session.id, turn_id)
        if finished is not None and finished.turn <= session.turns:
            return self._replay_turn(subscriber, session, finished.turn, now)
        self._check_no_job(session)
        self._core.queue.count_turn(session.id, now, 0.0)
        try:
            text = self._filter.read(fields["instruction"]).text
            text, fault = rehearsal.split(text) if self._rehearses else (text, "")
        except AnimeGamerError:
            self._core.queue.count_turn(session.id, now)  # to read it took time that everybody shares
            raise
        requested_s = fields.get("deadline_s", math.inf)
        frame_options = self._check_job(session, client, now)
        job = Turn(
            session=session.id,
            subscriber=subscriber,
            accepted_at=now,
            deadline_at=now + min(requested_s, self._options.turn_deadline_s),
            requested_s=requested_s,
            turn=session.turns + 1,
            turn_id=turn_id,
            instruction=text,
            fault=fault,
            seed=session.seed,
            frame_options=frame_options,
        )
        return self._admit_played(job, now)

    def _wish(self, client: Client, message: Message, now: float) -> list[Effect]:
        session = self._session(message)
        texts = list(dict.fromkeys(message.fields["instructions"]))[: self._options.ahead]
        self._core.queue.count_change(client.holder, now, len(texts) * CHANGES_PER_TEXT)
        wishes = list(dict.fromkeys(self._filter.read(text).text for text in texts))
        self._core.queue.use_session(session.id, now, client)
        running = self._core.queue.of_session(session.id)
        turn = 1 + (running.turn if isinstance(running, Turn) else session.turns)
        effects = self._core.wish(session.id, turn, wishes)
        answer = Message("wished", {"instructions": wishes}, parent=message.id, session=session.id, turn=turn)
        return [*effects, Send(client, answer)]

    def _replay(self, client: Client, message: Message, now: float) -> list[Effect]:
        session, turn = self._session(message), message.turn
        assert turn is not None
        subscriber = Subscriber(client, message.id, message.fields.get("after_seq", -1))
        running = self._core.queue.of_session(session.id)
        if isinstance(running, Played) and running.turn == turn:
            return self._core.subscribe(running, subscriber)
        return self._replay_turn(subscriber, session, turn, now)

    def _rewind(self, client: Client, message: Message, now: float) -> list[Effect]:
        session = self._session(message)
        self._check_no_job(session)
        self._core.queue.count_change(client.holder, now)
        self._storage.remove_now(session.id)
        session = self._storage.store.rewind(session.id, message.fields["turn"])
        effects = self._core.session_changed(session.id)
        fields = {"turns": session.turns, "character": asdict(session.character)}
        return effects + _reply(client, message, "rewound", fields, session.id)

    def _list(self, client: Client, message: Message, now: float) -> list[Effect]:
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
            for turn in self._storage.store.turns(session.id, first, last)
        ]
        return _reply(client, message, "listed", {"turns": turns, "more": first > 1}, session.id)

    def _export(self, client: Client, message: Message, now: float) -> list[Effect]:
        session = self._session(message)
        if self._options.ray is not None:
            what = "this server cannot export: its workers are on other machines"
            raise ProtocolError(what, code="unknown_type", do="check welcome.capabilities first")
        if 0 < self._options.export_turns < session.turns:
            what, found = "the game is too long to export", f"{session.turns} turns"
            do = f"branch at turn {self._options.export_turns} or before, and export the branch"
            expected = f"at most {self._options.export_turns} turns"
            raise ProtocolError(what, code="too_large", found=found, expected=expected, do=do)
        self._check_job(session, client, now)
        cost_turns = self._core.dispatch.times.cost_turns(0, max(1, session.turns))
        self._core.queue.count_turn(session.id, now, cost_turns)
        # Every turn of the game is rendered again, so it may take as long as all of them together.
        seconds = self._options.turn_deadline_s * max(1, session.turns)
        subscriber = Subscriber(client, message.id)
        job = Export(
            session=session.id,
            subscriber=subscriber,
            accepted_at=now,
            deadline_at=now + seconds,
            cost_turns=cost_turns,
            turns=session.turns,
        )
        return self._core.admit(job, now)

    def _close(self, client: Client, message: Message, now: float) -> list[Effect]:
        session = self._session(message)
        self._check_no_job(session)
        self._storage.store.close_session(session.id)
        effects = self._core.session_changed(session.id)
        self._core.queue.forget_session(session.id)
        return effects + _reply(client, message, "closed", {}, session.id)

    def _cancel(self, client: Client, message: Message, now: float) -> list[Effect]:
        session = self._session(message)
        running = self._core.queue.of_session(session.id) is not None
        effects = self._core.cancel(session.id)
        return effects + _reply(client, message, "cancelling", {"running": running}, session.id)

    def _session(self, message: Message) -> StoredSession:
        """The session of a request, with the turns that are done. Raises StoreError, also for a wrong token."""
        assert message.session is not None
        session = self._storage.store.check(message.session, message.fields["token"])
        self._check_bundle(session)
        return self._storage.as_done(session)

    def _new_session(
        self, client: Client, seed: int, window: int, now: float, start: StoredStart | None = None
    ) -> tuple[StoredSession, str]:
        session, token = self._storage.store.open(self._bundle.manifest.name, self._fingerprint, seed, window, start)
        self._core.queue.use_session(session.id, now, client)
        return session, token

    def _replay_turn(self, subscriber: Subscriber, session: StoredSession, turn: int, now: float) -> list[Effect]:
        """Queue a replay of a finished turn."""
        found = self._storage.store.turns(session.id, turn, turn)
        if not found or turn > session.turns:
            raise _no_such_turn(session, turn)
        job = Replay(
            session=session.id,
            subscriber=subscriber,
            accepted_at=now,
            deadline_at=now + self._options.turn_deadline_s,
            turn=turn,
            turn_id=found[0].turn_id,
            instruction=found[0].instruction,
            seed=found[0].seed,
            noise_version=found[0].noise_version,
            frame_options=self._check_job(session, subscriber.client, now),
        )
        return self._admit_played(job, now)

    def _admit_played(self, job: Played, now: float) -> list[Effect]:
        job.cost_turns = self._core.dispatch.times.cost_turns(self._storage.missing_shots(job))
        self._core.queue.count_turn(job.session, now, job.cost_turns)
        return self._core.admit(job, now)

    def _check_job(self, session: StoredSession, client: Client, now: float) -> FrameOptions:
        """Check that a session can have a job now, record its use, return the frame options. Raises ProtocolError."""
        assert client.frame_options is not None
        self._check_no_job(session)
        self._core.dispatch.fleet.check_ready()
        self._check_engines(session)
        self._core.queue.check_free_space(client.holder)
        self._core.queue.use_session(session.id, now, client, played=True)
        client.use()
        return client.frame_options

    def _check_no_job(self, session: StoredSession) -> None:
        running = self._core.queue.of_session(session.id)
        if running is not None:
            busy = "export is still running" if isinstance(running, Export) else "turn is still running"
            do = "wait until it ends, or send cancel on the control socket"
            raise ProtocolError(f"the session's {busy}", code="turn_running", do=do)

    def _check_bundle(self, session: StoredSession) -> None:
        session.require_bundle(self._bundle.manifest.name, self._fingerprint)

    def _check_engines(self, session: StoredSession) -> None:
        """Raises StoreError if other engines made the session's turns, unless the operator allows that."""
        if not self._options.continue_on_other_engines:
            session.require_engines(self._core.dispatch.fleet.engines)

    def _opened(
        self,
        client: Client,
        parent: str | None,
        session: StoredSession,
        token: str,
        seen: dict[str, Any] | None = None,
    ) -> list[Effect]:
        fields: dict[str, Any] = {
            "token": token,
            "seed": session.seed,
            "history_turns": session.history_turns,
            "turns": session.turns,
            "character": asdict(session.character),
        }
        running = self._core.queue.of_session(session.id)
        if isinstance(running, Played):
            fields["running"] = {"turn": running.turn, "turn_id": running.turn_id}
        if seen is not None:
            fields["understood"] = seen
        return [Send(client, Message("opened", fields, parent=parent, session=session.id))]


def _no_such_turn(session: StoredSession, turn: int) -> ProtocolError:
    expected = f"at most {session.turns}"
    return ProtocolError("no such turn", code="no_such_turn", found=f"turn {turn}", expected=expected)


def _reply(
    client: Client, message: Message, type: str, fields: dict[str, Any], session: str | None = None
) -> list[Effect]:
    return [Send(client, Message(type, fields, parent=message.id, session=session))]
