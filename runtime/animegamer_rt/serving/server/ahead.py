"""Speculative turns: played before they are asked for, by a worker that is idle; which, for whom, and what is held.

Knows the ready turns and their bounds; the core owns the workers, of which one plays ahead at a time. A ready turn is
what the worker said of a job whose message is the same, byte for byte, as the one that the real turn would be given
(instruction, history, shots, seed, the form of the frames), on the same engines. So its answer is the same as without
it, and a guess that nobody asks for changes nothing.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from animegamer_rt.errors import AnimeGamerError
from animegamer_rt.serving.wire import Message, encode
from animegamer_rt.serving.wire.worker_messages import HEARTBEAT, JobFailed, TurnFinished, TurnResult

from .clients import Client
from .effects import Cancel, Counted, Effect, Logged, Send
from .guesses import REMEMBERED_TURNS, Guesser
from .jobs import Job, Subscriber, Turn, size_of
from .options import ServeOptions
from .storage import Storage

PAUSE_S = 0.1
"""Idle time before a turn is played ahead: a program that plays without a pause sends its next turn sooner."""


@dataclass(slots=True, eq=False)
class AheadTurn:
    """A turn that is ready, or that a worker plays now. key: of its job's message.

    messages: what the worker has said of it. stopped: the worker was told to stop it, and has not answered yet.
    """

    job: Turn
    key: bytes
    started_at: float
    messages: list[Message] = field(default_factory=list)
    size_bytes: int = 0
    seconds: float = 0.0
    stopped: bool = False

    @property
    def complete(self) -> bool:
        """Whether the worker has said all of it."""
        return bool(self.messages) and self.messages[-1].type == TurnFinished.TYPE

    def answer(self) -> tuple[list[Message], list[Message]]:
        """The messages that the client sees, and those that are stored: pictures wait for no disk."""
        shown = [message for message in self.messages if message.type not in (TurnResult.TYPE, TurnFinished.TYPE)]
        return shown, [message for message in self.messages if message not in shown]


@dataclass(slots=True)
class _Waiting:
    """A session that waits for its player. turn: the next one.

    guesses: the instructions that were not begun, the next one last.
    """

    client: Client
    turn: int
    seed: int
    guesses: list[str]
    begun: int = 0
    ready: dict[str, AheadTurn] = field(default_factory=dict)


class AheadTurns:
    """At most `ahead` turns for each session, and `ahead_mib` in all. Times are of the monotonic clock.

    running: the turn that a worker plays ahead. effects: where offers and figures go.
    """

    def __init__(self, options: ServeOptions, storage: Storage, guesser: Guesser, effects: list[Effect]) -> None:
        self._options, self._storage, self._guesser, self._effects = options, storage, guesser, effects
        self._max_bytes = int(options.ahead_mib * 2**20)
        self._sessions: dict[str, _Waiting] = {}
        self._not_before = 0.0
        self._too_large = False
        self._paused = False
        """After playing ahead ended a worker or failed, until a real turn was done: a guess never costs a turn."""
        self.running: AheadTurn | None = None

    def postpone(self, now: float) -> None:
        """Begin nothing while a job runs, nor just after it."""
        self._not_before = max(self._not_before, now + PAUSE_S)

    def next_job(self, connected: Mapping[str, Client], engines: str | None, now: float) -> Turn | None:
        """The next turn to play ahead, if it is time for one. The sessions with the fewest come first.

        connected: the sessions whose connection is there, with that connection, the last used first.
        engines: what the workers' engines are.
        """
        if self._too_large or self._paused or self.running is not None or now < self._not_before:
            return None
        for session in self._sessions.keys() - connected.keys():
            self.forget(session)
        waiting = {session: self._waiting(session, client, engines) for session, client in connected.items()}
        able = [session for session, one in waiting.items() if one.guesses]
        if not able:
            self._not_before = now + PAUSE_S
            return None
        chosen = min(able, key=lambda session: waiting[session].begun)
        one = waiting[chosen]
        one.begun += 1
        options = one.client.frame_options
        assert options is not None
        return Turn(
            session=chosen,
            subscriber=Subscriber(one.client, None),
            accepted_at=now,
            deadline_at=now,
            turn=one.turn,
            turn_id="",
            instruction=one.guesses.pop(),
            seed=one.seed,
            frame_options=options,
        )

    def begun(self, job: Turn, message: Message, engines: str | None, now: float) -> None:
        """Note that a worker was given a job of `next_job`."""
        self.running = AheadTurn(job, job_key(message, engines), now)

    def heard(self, message: Message, now: float) -> bool:
        """Keep what the worker says of the running one; returns whether that was the last of it."""
        running = self.running
        assert running is not None and running.job.id == message.parent
        if message.type != HEARTBEAT:
            running.messages.append(message)
            running.size_bytes += size_of(message)
        if running.size_bytes > self._max_bytes:
            if not self._too_large:
                text = "a turn takes more than ahead_mib holds: no turn is played ahead any more"
                self._effects.append(Logged(logging.WARNING, text))
            self._too_large, running.messages = True, []
        if message.type not in (TurnFinished.TYPE, JobFailed.TYPE):
            return False
        self.running, running.seconds = None, now - running.started_at
        self._not_before = now
        waiting = self._sessions.get(running.job.session)
        kept = running.complete and not running.stopped and not self._too_large
        if not kept or waiting is None or waiting.turn != running.job.turn:
            self._effects.append(Counted("ahead_wasted_seconds", running.seconds))
            return True
        waiting.ready[running.job.instruction] = running
        self._effects.append(Counted("ahead_offered"))
        self._make_room()
        if running.job.instruction in waiting.ready:
            self._offer(running.job.session)
        return True

    def stop(self) -> None:
        """Have the worker that plays a turn ahead, if one does, stop it."""
        running = self.running
        if running is not None and not running.stopped and running.job.worker is not None:
            running.stopped = True
            self._effects.append(Cancel(running.job.worker, running.job.id))

    def _has(self, job: Turn) -> bool:
        """Whether a turn of this session and instruction is ready or under way; `take` sees whether it fits."""
        waiting, running = self._sessions.get(job.session), self.running
        if running is not None and (running.job.session, running.job.instruction) == (job.session, job.instruction):
            return True
        return waiting is not None and job.instruction in waiting.ready

    def take(self, job: Job, engines: str | None, idle: bool) -> AheadTurn | None:
        """The ready turn that these engines played for the very message of this job; if `idle`, also one under way."""
        if not isinstance(job, Turn) or not self._has(job):
            return None
        try:
            message, _ = self._storage.job_message(job)
        except AnimeGamerError:  # its client gets the error when the turn is handed out
            return None
        key, running = job_key(message, engines), self.running
        if running is not None and running.key == key and not running.stopped and not self._too_large and idle:
            self.running = None
            self._effects += [Counted("ahead_offered"), Counted("ahead_used")]
            return running
        waiting = self._sessions.get(job.session)
        ready = None if waiting is None else waiting.ready.get(job.instruction)
        if waiting is None or ready is None or ready.key != key:
            return None
        del waiting.ready[job.instruction]
        self._effects.append(Counted("ahead_used"))
        return ready

    def forget(self, session: str) -> None:
        """Drop what is ready of a session that went on, was changed or closed, or whose connection is gone."""
        waiting = self._sessions.pop(session, None)
        ready = () if waiting is None else waiting.ready.values()
        self._effects += [Counted("ahead_wasted_seconds", one.seconds) for one in ready]

    def turn_done(self, session: str) -> None:
        """Note that a real turn of the session was finished."""
        self._paused = False
        self.forget(session)

    def pause(self) -> None:
        """Play nothing ahead until a real turn was done."""
        self._paused = True

    def session_changed(self, session: str) -> None:
        """Note that a session was rewound or closed: no turn of it is ready."""
        self.forget(session)
        if self.running is not None and self.running.job.session == session:
            self.stop()

    def worker_died(self, worker: int) -> bool:
        """Drop the running turn if it was played by a worker that died; returns whether it was."""
        if self.running is None or self.running.job.worker != worker:
            return False
        self.running = None
        self.pause()
        return True

    def _waiting(self, session: str, client: Client, engines: str | None) -> _Waiting:
        known = self._sessions.get(session)
        if known is not None and known.client is not client:
            if known.client.frame_options == client.frame_options:
                known.client = client
                self._offer(session)
            else:
                self.forget(session)
                known = None
        if known is None:
            known = self._sessions[session] = self._guess(session, client, engines)
        return known

    def _guess(self, session: str, client: Client, engines: str | None) -> _Waiting:
        """What a session's next turn may be; no guesses if it cannot go on."""
        try:
            stored, played = self._storage.game(session, REMEMBERED_TURNS)
            if not self._options.continue_on_other_engines:
                stored.require_engines(engines)
        except AnimeGamerError:
            return _Waiting(client, 0, 0, [])
        texts = [] if stored.closed else self._guesser.likeliest(played, stored.seed, self._options.ahead)
        return _Waiting(client, stored.turns + 1, stored.seed, texts[::-1])

    def _make_room(self) -> None:
        """Drop the turns that were ready for longest while all take too much. They are not played ahead again."""
        while sum(ready.size_bytes for ready in self._ready()) > self._max_bytes:
            oldest = min(self._ready(), key=lambda ready: ready.started_at)
            del self._sessions[oldest.job.session].ready[oldest.job.instruction]
            self._effects.append(Counted("ahead_wasted_seconds", oldest.seconds))
            self._offer(oldest.job.session)

    def _ready(self) -> Sequence[AheadTurn]:
        return [ready for waiting in self._sessions.values() for ready in waiting.ready.values()]

    def _offer(self, session: str) -> None:
        """Tell the session's client what is ready."""
        waiting = self._sessions[session]
        offer = {"instructions": list(waiting.ready)}
        self._effects.append(Send(waiting.client, Message("offer", offer, session=session, turn=waiting.turn)))


def job_key(message: Message, engines: str | None) -> bytes:
    """A digest of all that a job's message says but its id, and of the engines that play it."""
    digest = hashlib.blake2b((engines or "").encode(), digest_size=16)
    frames: Iterable[bytes | memoryview] = encode(replace(message, id=None))
    for frame in frames:
        digest.update(len(frame).to_bytes(8, "little"))
        digest.update(frame)
    return digest.digest()
