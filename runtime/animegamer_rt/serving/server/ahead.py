"""Turns that are played before they are asked for: which, for whom, and what is held of them.

Knows the ready turns and their bounds; the dispatcher owns the workers, of which one plays ahead at a time. A ready
turn is what the worker said of a job whose message is the same, byte for byte, as the one that the real turn would be
given (instruction, history, shots, seed, the form of the frames), on the same engines. So its answer is the same as
without it, and a guess that nobody asks for changes nothing.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from animegamer_rt.bundle.manifest import ReaderWords
from animegamer_rt.errors import AnimeGamerError
from animegamer_rt.serving.store import Store
from animegamer_rt.serving.wire import Message, encode
from animegamer_rt.serving.wire.worker_messages import HEARTBEAT, JobFailed, TurnFinished, TurnResult

from .clients import Client
from .guesses import REMEMBERED_TURNS, guesses
from .instruction_filter import InstructionFilter
from .job_queue import JobQueue
from .jobs import EVENT_OVERHEAD_BYTES, Job, Subscriber
from .metrics import Metrics
from .options import ServeOptions

PAUSE_S = 0.1
"""Idle time before a turn is played ahead: a program that plays without a pause sends its next turn sooner."""
_LAST = {TurnResult.TYPE: 1, TurnFinished.TYPE: 2}

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class AheadTurn:
    """A turn that is ready, or that a worker plays now. key: of its job's message.

    messages: what the worker has said of it. stopped: the worker was told to stop it, and has not answered yet.
    """

    job: Job
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

    @property
    def answer(self) -> Sequence[Message]:
        """The messages as they are told: pictures come before what is stored, and wait for no disk."""
        return sorted(self.messages, key=lambda message: _LAST.get(message.type, 0))


@dataclass(slots=True)
class _Waiting:
    """A session that waits for its player. turn: the next one.

    guesses: the instructions that were not begun, the next one last.
    """

    client: Client
    turn: int
    guesses: list[str]
    begun: int = 0
    ready: dict[str, AheadTurn] = field(default_factory=dict)


class AheadTurns:
    """At most `--ahead` turns for each session, and `--ahead-mib` in all. Times are of the monotonic clock.

    running: the turn that the worker plays ahead. words: of the bundle, if it lists them.
    """

    def __init__(
        self,
        options: ServeOptions,
        store: Store,
        queue: JobQueue,
        metrics: Metrics,
        instruction_filter: InstructionFilter,
        words: ReaderWords | None,
    ) -> None:
        self._count, self._share = options.ahead, options.ahead_share
        self._max_bytes = int(options.ahead_mib * 2**20)
        self._continue = options.continue_on_other_engines
        self._store, self._queue, self._metrics = store, queue, metrics
        self._filter, self._words = instruction_filter, words
        self._sessions: dict[str, _Waiting] = {}
        self._not_before = 0.0
        self._paused = False
        """After playing ahead ended a worker or failed, until a real turn was done: a guess never costs a turn."""
        self.running: AheadTurn | None = None

    def postpone(self, now: float) -> None:
        """A job is there: nothing is begun while it runs, nor just after it."""
        self._not_before = max(self._not_before, now + PAUSE_S)

    def next_job(self, now: float, engines: str | None) -> Job | None:
        """The next turn to play ahead, if it is time for one. The sessions with the fewest come first.

        engines: what the worker's engines are.
        """
        if not self._count or self._paused or self.running is not None or now < self._not_before:
            return None
        connected = self._queue.connected_sessions()
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
        text, options = one.guesses.pop(), one.client.frame_options
        assert options is not None
        job = Job("turn", chosen, Subscriber(one.client, None), options, now, now, turn=one.turn, instruction=text)
        job.seed = self._store.get(chosen).seed
        return job

    def begun(self, job: Job, message: Message, engines: str | None, now: float) -> None:
        """The worker was given a job of `next_job`."""
        self.running = AheadTurn(job, job_key(message, engines), now)

    def on_message(self, message: Message, now: float) -> bool:
        """Keep what the worker says of the running one; returns whether that was the last of it."""
        running = self.running
        assert running is not None and running.job.id == message.parent
        if message.type != HEARTBEAT:
            running.messages.append(message)
            running.size_bytes += sum(len(buffer) for buffer in message.buffers) + EVENT_OVERHEAD_BYTES
        if running.size_bytes > self._max_bytes:
            if self._count:
                log.warning("a turn takes more than --ahead-mib holds: no turn is played ahead any more")
            self._count, running.messages = 0, []
        if message.type not in (TurnFinished.TYPE, JobFailed.TYPE):
            return False
        self.running, running.seconds = None, now - running.started_at
        self._not_before = now + running.seconds * (1 / self._share - 1)
        waiting = self._sessions.get(running.job.session)
        kept = running.complete and not running.stopped and self._count
        if not kept or waiting is None or waiting.turn != running.job.turn:
            self._metrics.ahead_wasted(running.seconds)
            return True
        waiting.ready[running.job.instruction] = running
        self._metrics.ahead_offered()
        self._make_room()
        if running.job.instruction in waiting.ready:
            self._offer(running.job.session)
        return True

    def has(self, job: Job) -> bool:
        """Whether a turn of this session and instruction is ready or under way; `take` says whether it fits."""
        waiting, running = self._sessions.get(job.session), self.running
        under_way = running is not None and (running.job.session, running.job.instruction) == (
            job.session,
            job.instruction,
        )
        return under_way or (waiting is not None and job.instruction in waiting.ready)

    def take(self, job: Job, message: Message, engines: str | None) -> AheadTurn | None:
        """The ready turn, or the one under way, whose job was given to these engines as this very message."""
        key, running = job_key(message, engines), self.running
        if running is not None and running.key == key and not running.stopped and self._count and self._queue.idle:
            self.running = None
            self._metrics.ahead_offered()
            self._metrics.ahead_used()
            return running
        waiting = self._sessions.get(job.session)
        ready = None if waiting is None else waiting.ready.get(job.instruction)
        if waiting is None or ready is None or ready.key != key:
            return None
        del waiting.ready[job.instruction]
        self._metrics.ahead_used()
        return ready

    def forget(self, session: str) -> None:
        """The session went on, was changed or closed, or its connection is gone."""
        waiting = self._sessions.pop(session, None)
        for ready in () if waiting is None else waiting.ready.values():
            self._metrics.ahead_wasted(ready.seconds)

    def turn_done(self, session: str) -> None:
        """A real turn of the session was finished."""
        self._paused = False
        self.forget(session)

    def pause(self) -> None:
        """Play nothing ahead until a real turn was done."""
        self._paused = True

    def worker_died(self) -> bool:
        """Returns whether it died while it played a turn ahead."""
        died, self.running = self.running, None
        if died is not None:
            self.pause()
        return died is not None

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
            known = self._sessions[session] = _Waiting(client, *self._guess(session, engines))
        return known

    def _guess(self, session: str, engines: str | None) -> tuple[int, list[str]]:
        """The number of a session's next turn, and what it may be, the likeliest last; nothing if it cannot go on."""
        try:
            stored = self._store.get(session)
            if not self._continue:
                stored.require_engines(engines)
            played = self._store.turns(session, stored.turns - REMEMBERED_TURNS + 1, stored.turns)
        except AnimeGamerError:
            return 0, []
        texts = (text for text in guesses(self._words, played, stored.seed) if self._allowed(text))
        return stored.turns + 1, [] if stored.closed else list(islice(texts, self._count))[::-1]

    def _allowed(self, text: str) -> bool:
        try:
            return self._filter.read(text).text == text
        except AnimeGamerError:
            return False

    def _make_room(self) -> None:
        """Drop the turns that were ready for longest while all take too much. They are not played ahead again."""
        while sum(ready.size_bytes for ready in self._ready()) > self._max_bytes:
            oldest = min(self._ready(), key=lambda ready: ready.started_at)
            del self._sessions[oldest.job.session].ready[oldest.job.instruction]
            self._metrics.ahead_wasted(oldest.seconds)
            self._offer(oldest.job.session)

    def _ready(self) -> Sequence[AheadTurn]:
        return [ready for waiting in self._sessions.values() for ready in waiting.ready.values()]

    def _offer(self, session: str) -> None:
        """Tell the session's client what is ready."""
        waiting = self._sessions[session]
        offer = {"instructions": list(waiting.ready)}
        waiting.client.send(Message("offer", offer, session=session, turn=waiting.turn))


def job_key(message: Message, engines: str | None) -> bytes:
    """A digest of all that a job's message says but its id, and of the engines that play it."""
    digest = hashlib.blake2b((engines or "").encode(), digest_size=16)
    for frame in encode(replace(message, id=None)):
        digest.update(len(frame).to_bytes(8, "little"))
        digest.update(frame)
    return digest.digest()
