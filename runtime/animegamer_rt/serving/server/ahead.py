"""Speculative turns: rendered by an idle worker before a player asks for them.

Decides which turns to render, and holds the ready ones within bounds; the core owns the workers, of which one renders
speculatively at a time. A ready turn is used only if the real turn's job message is identical byte for byte
(instruction, history, shots, seed, frame options) and the engines are the same. So it never changes what a player sees.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from animegamer_rt.errors import AnimeGamerError
from animegamer_rt.serving.wire.codec import Message, encode
from animegamer_rt.serving.wire.worker_messages import HEARTBEAT, JobFailed, TurnFinished, TurnResult

from .clients import Client
from .effects import Cancel, Counted, Effect, Send
from .guesses import REMEMBERED_TURNS, Guesser
from .jobs import Job, Subscriber, Turn, size_of
from .options import ServeOptions
from .storage import Storage

MAX_BEGUN = 4
"""Times `ahead`: speculative turns that are begun between two turns of a session, however often it wishes."""
PAUSE_S = 0.1
"""Idle time before a speculative turn starts: a program that plays without pauses sends its next turn sooner."""


@dataclass(slots=True, eq=False)
class AheadTurn:
    """A turn that is ready or being rendered. key: of its job's message.

    messages: from the worker so far. stopped: the worker was told to stop and has not confirmed yet.
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
        """Whether the worker has sent all of it."""
        return bool(self.messages) and self.messages[-1].type == TurnFinished.TYPE

    def answer(self) -> tuple[list[Message], list[Message]]:
        """The messages for the client, and those to store: pictures do not wait for the disk."""
        shown = [message for message in self.messages if message.type not in (TurnResult.TYPE, TurnFinished.TYPE)]
        return shown, [message for message in self.messages if message not in shown]


@dataclass(slots=True)
class _Waiting:
    """A session waiting for its player. turn: the next one. wishes, guesses: its instructions, the likeliest first.

    most: turns that it may have ready. begun: how many were begun. tried: instructions that are not begun again.
    """

    client: Client
    turn: int
    seed: int
    most: int
    guesses: Sequence[str] = ()
    wishes: Sequence[str] = ()
    begun: int = 0
    tried: set[str] = field(default_factory=set)
    ready: dict[str, AheadTurn] = field(default_factory=dict)

    @property
    def wanted(self) -> list[str]:
        """The instructions to have ready: wishes come before guesses."""
        return list(dict.fromkeys([*self.wishes, *self.guesses]))[: self.most]

    @property
    def next(self) -> str | None:
        """The instruction to begin next."""
        if self.begun >= MAX_BEGUN * self.most:
            return None
        return next((text for text in self.wanted if text not in self.tried), None)

    def make_place(self) -> AheadTurn | None:
        """Drop and return a ready turn that is no longer wanted, if it is in the place of one that is."""
        if len(self.ready) < self.most:
            return None
        wanted = self.wanted
        return self.ready.pop(next(text for text in self.ready if text not in wanted))


class AheadTurns:
    """At most `ahead` turns per session and `ahead_mib` in total. Times are of the monotonic clock.

    running: the turn a worker is rendering now. effects: receives offers and figures.
    """

    def __init__(self, options: ServeOptions, storage: Storage, guesser: Guesser, effects: list[Effect]) -> None:
        self._options, self._storage, self._guesser, self._effects = options, storage, guesser, effects
        self._max_bytes = int(options.ahead_mib * 2**20)
        self._sessions: dict[str, _Waiting] = {}
        self._wishes: dict[str, tuple[int, Sequence[str]]] = {}
        """Session -> a turn's number, and what it may be."""
        self._not_before = 0.0
        self._paused = False
        """Set when a speculative turn failed or its worker died, until a real turn is done."""
        self.running: AheadTurn | None = None

    def postpone(self, now: float) -> None:
        """Start nothing while a job runs, nor right after it."""
        self._not_before = max(self._not_before, now + PAUSE_S)

    def wish(self, session: str, turn: int, instructions: Sequence[str], connected: Set[str]) -> None:
        """Make these ready for the session's turn of this number, before guesses. Replaces its earlier wish.

        connected: the sessions with an open connection.
        """
        for other in self._wishes.keys() - connected:
            del self._wishes[other]
        self._wishes[session] = turn, instructions
        waiting, running = self._sessions.get(session), self.running
        if waiting is None or waiting.turn != turn:
            return
        waiting.wishes = instructions
        if running is not None and running.job.session == session and running.job.instruction not in waiting.wanted:
            self.stop()

    def begin(self, connected: Mapping[str, Client], engines: str | None, now: float) -> tuple[Turn, Message] | None:
        """The next turn to give a worker and its message, if it is time. Raises StoreError.

        connected: sessions with an open connection, and that connection, most recently used first.
        engines: the identity of the workers' engines.
        """
        job = self._next_job(connected, engines, now)
        if job is None:
            return None
        message = self._storage.job_message(job)
        self.running = AheadTurn(job, job_key(message, engines), now)
        return job, message

    def _next_job(self, connected: Mapping[str, Client], engines: str | None, now: float) -> Turn | None:
        """Wishes come first, then sessions with the fewest begun."""
        if not self._options.ahead or self._paused or self.running is not None or now < self._not_before:
            return None
        for session in (self._sessions.keys() | self._wishes.keys()) - connected.keys():
            self._wishes.pop(session, None)
            self.forget(session)
        waiting = {session: self._waiting(session, client, engines) for session, client in connected.items()}
        able = [(session, one, text) for session, one in waiting.items() if (text := one.next) is not None]
        if not able:
            self._not_before = now + PAUSE_S
            return None
        chosen, one, text = min(able, key=lambda choice: (choice[2] not in choice[1].wishes, choice[1].begun))
        one.begun += 1
        one.tried.add(text)
        options = one.client.frame_options
        assert options is not None
        return Turn(
            session=chosen,
            subscriber=Subscriber(one.client, None),
            accepted_at=now,
            deadline_at=now,
            turn=one.turn,
            turn_id="",
            instruction=text,
            seed=one.seed,
            frame_options=options,
        )

    def receive(self, message: Message, now: float) -> bool:
        """Keep a worker's message about the running turn; returns whether it was the last."""
        running = self.running
        assert running is not None and running.job.id == message.parent
        if message.type != HEARTBEAT:
            running.messages.append(message)
            running.size_bytes += size_of(message)
        if message.type not in (TurnFinished.TYPE, JobFailed.TYPE):
            return False
        self.running, running.seconds = None, now - running.started_at
        self._not_before = now
        waiting = self._sessions.get(running.job.session)
        if not running.complete or running.stopped or waiting is None or waiting.turn != running.job.turn:
            self._effects.append(Counted("ahead_wasted_seconds", running.seconds))
            if waiting is not None and running.stopped and running.job.instruction in waiting.wishes:
                waiting.tried.discard(running.job.instruction)  # a real job was in its way
            return True
        if (dropped := waiting.make_place()) is not None:
            self._effects.append(Counted("ahead_wasted_seconds", dropped.seconds))
        waiting.ready[running.job.instruction] = running
        self._effects.append(Counted("ahead_offered"))
        self._make_room()
        if running.job.instruction in waiting.ready:
            self._offer(running.job.session)
        return True

    def stop(self) -> None:
        """Have the worker stop its speculative turn, if it has one."""
        running = self.running
        if running is not None and not running.stopped and running.job.worker is not None:
            running.stopped = True
            self._effects.append(Cancel(running.job.worker, running.job.id))

    def _has(self, job: Turn) -> bool:
        """Whether a turn of this session and instruction is ready or running; `take` checks whether it fits."""
        waiting, running = self._sessions.get(job.session), self.running
        if running is not None and (running.job.session, running.job.instruction) == (job.session, job.instruction):
            return True
        return waiting is not None and job.instruction in waiting.ready

    def take(self, job: Job, engines: str | None, idle: bool) -> AheadTurn | None:
        """The ready turn for exactly this job message and these engines; if `idle`, also one still running."""
        if not isinstance(job, Turn) or not self._has(job):
            return None
        try:
            message = self._storage.job_message(job)
        except AnimeGamerError:  # its client gets the error when the turn is dispatched
            return None
        key, running = job_key(message, engines), self.running
        if running is not None and running.key == key and not running.stopped and idle:
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
        """Drop ready turns of a session that moved on, was changed or closed, or lost its connection."""
        waiting = self._sessions.pop(session, None)
        ready = () if waiting is None else waiting.ready.values()
        self._effects += [Counted("ahead_wasted_seconds", one.seconds) for one in ready]

    def turn_done(self, session: str) -> None:
        """Record that a real turn of the session was finished."""
        self._paused = False
        self.forget(session)

    def pause(self) -> None:
        """No speculative turns until a real turn is done."""
        self._paused = True

    def session_changed(self, session: str) -> None:
        """Record that a session was rewound or closed: its ready turns are invalid."""
        self._wishes.pop(session, None)
        self.forget(session)
        if self.running is not None and self.running.job.session == session:
            self.stop()

    def worker_died(self, worker: int) -> bool:
        """Drop the running turn if its worker died; returns whether it did."""
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
        """Wishes and guesses for a session's next turn; none if it cannot continue."""
        try:
            stored, played = self._storage.game(session, REMEMBERED_TURNS)
            if not self._options.continue_on_other_engines:
                stored.require_engines(engines)
        except AnimeGamerError:
            return _Waiting(client, 0, 0, self._options.ahead)
        waiting = _Waiting(client, stored.turns + 1, stored.seed, self._options.ahead)
        if not stored.closed:
            waiting.guesses = self._guesser.likeliest(played, stored.seed, self._options.ahead)
            turn, wishes = self._wishes.get(session, (0, ()))
            waiting.wishes = wishes if turn == waiting.turn else ()
        return waiting

    def _make_room(self) -> None:
        """Drop the oldest ready turns while all exceed the limit. They are not rendered again."""
        while sum(ready.size_bytes for ready in self._ready()) > self._max_bytes:
            oldest = min(self._ready(), key=lambda ready: ready.started_at)
            del self._sessions[oldest.job.session].ready[oldest.job.instruction]
            self._effects.append(Counted("ahead_wasted_seconds", oldest.seconds))
            self._offer(oldest.job.session)

    def _ready(self) -> Sequence[AheadTurn]:
        return [ready for waiting in self._sessions.values() for ready in waiting.ready.values()]

    def _offer(self, session: str) -> None:
        """Send the session's client the list of ready turns."""
        waiting = self._sessions[session]
        offer = {"instructions": list(waiting.ready)}
        self._effects.append(Send(waiting.client, Message("offer", offer, session=session, turn=waiting.turn)))


def job_key(message: Message, engines: str | None) -> bytes:
    """A digest of a job's message without its id, and of the engines."""
    digest = hashlib.blake2b((engines or "").encode(), digest_size=16)
    frames: Iterable[bytes | memoryview] = encode(replace(message, id=None))
    for frame in frames:
        digest.update(len(frame).to_bytes(8, "little"))
        digest.update(frame)
    return digest.digest()
