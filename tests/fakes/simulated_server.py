"""The server's own core, requests and storage, with a clock that a test sets, workers that say what it says, and
connections that listen. Only sockets and processes are missing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from animegamer_rt.language.phrases import Language
from animegamer_rt.serving.server.clients import CONTROL, TURNS
from animegamer_rt.serving.server.core import ServerCore
from animegamer_rt.serving.server.dispatch import Fleet
from animegamer_rt.serving.server.effects import Cancel, Effect, Ended, Give, Replace, Send, SendError, Started
from animegamer_rt.serving.server.guesses import Guesser
from animegamer_rt.serving.server.instruction_filter import InstructionFilter
from animegamer_rt.serving.server.jobs import Job
from animegamer_rt.serving.server.options import ServeOptions
from animegamer_rt.serving.server.requests import Requests
from animegamer_rt.serving.server.storage import Storage
from animegamer_rt.serving.store.store import Store
from animegamer_rt.serving.store.turns import StoredTurn
from animegamer_rt.serving.wire.codec import WORKER_LIMITS, Message, decode, encode
from animegamer_rt.serving.wire.worker_messages import FrameOptions, TurnResult
from animegamer_rt.state.game import CharacterState, GameState

SHOT = bytes(2)
STATE = GameState(motion_level=1, social=1, entertainment=1, stamina=1)


class Listener:
    """A connection that has said hello, and what it hears. holder: its key or address; None: it is its own."""

    def __init__(self, frame_options: FrameOptions | None = None, holder: object = None) -> None:
        self.holder, self.refused = holder or self, False
        self.frame_options: FrameOptions | None = frame_options or FrameOptions()
        self.minor, self.connected, self.heard = 3, True, list[Message]()

    def use(self) -> None:
        """It gets a job."""

    def kinds(self, parent: str | None = None) -> list[str]:
        """Types of the messages, with codes for errors; parent: of one request alone."""
        heard = (message for message in self.heard if parent in (None, message.parent))
        return [message.fields["code"] if message.type == "error" else message.type for message in heard]


class SimulatedWorker:
    """given: the jobs that it has and was not told to drop, in order; it runs the first. cancelled: what it was told
    to stop. replaced: whether its process is to be ended."""

    def __init__(self, number: int) -> None:
        self.number, self.serving, self.replaced = number, True, False
        self.given, self.cancelled = list[Message](), list[str]()

    @property
    def job(self) -> Message:
        """What it runs."""
        return self.given[0]

    @property
    def instructions(self) -> list[str]:
        """Of the turns that it has."""
        return [job.fields["instruction"] for job in self.given]

    def carry_out(self, effect: Give | Cancel | Ended | Replace) -> None:
        match effect:
            case Give(frames=frames):
                self.given.append(decode([bytes(frame) for frame in frames], WORKER_LIMITS, check=False))
                assert self.serving and len(self.given) <= 2, "one runs, one is ready"
            case Cancel(job=job):
                self.cancelled.append(job)
                self.given[1:] = [one for one in self.given[1:] if one.id != job]  # what it runs, the test ends
            case Ended(has_next=has_next):
                self.given.pop(0)
                assert bool(self.given) == has_next
            case Replace():
                self.replaced = True


class Game:
    """A player's session. session, token: as `opened` said."""

    def __init__(self, server: SimulatedServer, client: Listener, session: str, token: str) -> None:
        self.server, self.client, self.session, self.token = server, client, session, token
        self.sent = 0

    def ask(self, type: str, of_turn: int | None = None, **fields: Any) -> str:
        """Send a request of the session; returns its id. of_turn: the key `turn` of the header."""
        self.sent += 1
        parent = f"{self.session} {self.sent}"
        message = Message(type, {"token": self.token, **fields}, parent, session=self.session, turn=of_turn)
        self.server.ask(self.client, message, CONTROL if type == "cancel" else TURNS)
        return parent

    def turn(self, text: str = "Mia waves.", turn_id: str | None = None, **fields: Any) -> str:
        """Ask for a turn."""
        turn_id = turn_id or f"turn {self.sent + 1}"
        return self.ask("turn", instruction=text, turn_id=turn_id, **fields)

    def answer(self, type: str, **fields: Any) -> Message:
        """The last message that answers a request."""
        self.ask(type, **fields)
        return self.client.heard[-1]

    @property
    def turns(self) -> int:
        """Turns in the store."""
        return self.server.store.get(self.session).turns


class SimulatedServer:
    """noted: the effects for metrics and log. worker: the first of `workers`."""

    def __init__(self, store: Store, folder: Path, **options: Any) -> None:
        self.options, self.store, self.now = ServeOptions(**options), store, 0.0
        self.storage, self.noted = Storage(store, folder), list[Effect]()
        instruction_filter = InstructionFilter()
        self.core = ServerCore(self.options, self.storage, Guesser(None, Language(), instruction_filter))
        manifest = SimpleNamespace(name="tiny", compatibility=SimpleNamespace(history_turns=2))
        bundle = SimpleNamespace(manifest=manifest, fingerprint="f")
        status: Any = SimpleNamespace(bundle=bundle, connections=1, welcome=dict, starts_from_pictures=True)
        self.requests = Requests(self.options, status, self.storage, self.core, instruction_filter)
        self.workers = [SimulatedWorker(number) for number in range(1, self.options.workers + 1)]
        self.worker, self.degraded = self.workers[0], False
        self.tick()

    def ask(self, client: Any, message: Message, socket: str = TURNS) -> None:
        """A client's request, at the time that the clock shows."""
        self.carry_out(self.requests.handle(client, socket, encode(message), self.now))
        self.tick()

    def open(self, client: Any = None, **fields: Any) -> Game:
        """A new game, on a connection of its own unless one is given."""
        client = client or Listener()
        self.ask(client, Message("open", {"seed": 7, **fields}, "open"))
        opened = client.heard[-1]
        assert opened.type == "opened", opened
        return Game(self, client, opened.session, opened.fields["token"])

    def played(self, turns: int = 1, client: Any = None) -> Game:
        """A game of some turns."""
        game = self.open(client)
        for turn in range(1, turns + 1):
            finished = StoredTurn(turn, f"{turn}", "Mia waves.", 7, STATE, CharacterState())
            self.store.finish_turn(game.session, finished, {turn: SHOT})
        return game

    def tick(self, seconds: float = 0.0) -> None:
        """Let time pass, and the server look at what is due."""
        self.now += seconds
        self.carry_out(self.core.tick(self.fleet, self.now))

    @property
    def fleet(self) -> Fleet:
        serving = tuple(worker.number for worker in self.workers if worker.serving)
        retry_in_s = 0.0 if serving else 0.5
        return Fleet(serving, len(self.workers), True, self.degraded, last_error="killed", retry_in_s=retry_in_s)

    def says(self, type: str, worker: SimulatedWorker | None = None, job: str | None = None, **about: Any) -> None:
        """A worker says something of the job that it runs, or of another that it was given."""
        worker = worker or self.worker
        seq = about.pop("seq", None)
        message = Message(type, about, parent=job or worker.job.id, seq=seq)
        self.carry_out(self.core.worker_sent(worker.number, message, self.now))

    def result(self, worker: SimulatedWorker | None = None) -> None:
        """A worker has denoised the turn that it runs."""
        worker = worker or self.worker
        assert worker.job.turn is not None
        character = CharacterState(**worker.job.fields["character"]).after(STATE)
        result = TurnResult(STATE, character, {worker.job.turn: SHOT})
        self.says(result.TYPE, worker, **result.to_fields())

    def finish(self, worker: SimulatedWorker | None = None, total_s: float = 1.0) -> None:
        """A worker plays the turn that it runs to its end, without frames."""
        self.result(worker)
        self.says("finished", worker, seconds={"total": total_s})

    def stopped(self, worker: SimulatedWorker | None = None) -> None:
        """A worker has stopped the job that it runs, as it was told to."""
        self.says("failed", worker, code="cancelled", text="the turn was cancelled")

    def dies(self, worker: SimulatedWorker | None = None, back: bool = True) -> None:
        """A worker dies; back: its next process is there at once."""
        worker = worker or self.worker
        worker.given.clear()
        worker.serving = False
        self.carry_out(self.core.worker_died(worker.number, "killed", self.fleet, self.now))
        worker.serving = back
        self.tick()

    def vanishes(self, client: Any) -> None:
        """A connection is gone."""
        client.connected = False
        self.carry_out(self.core.client_gone(client))

    def job(self, game: Game) -> Job | None:
        """The game's job."""
        return self.core.queue.of_session(game.session)

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(client, message, _):
                    client.heard.append(message)
                case SendError(client, error, parent, session, turn):
                    fields = {"code": error.code, "text": error.text, "do": error.do}
                    client.heard.append(Message("error", fields, parent=parent, session=session, turn=turn))
                case Give() | Cancel() | Ended() | Replace():
                    self.workers[effect.worker - 1].carry_out(effect)
                case Started(job, start):
                    self.carry_out(self.requests.open_started(job, start, self.now))
                case _:
                    self.noted.append(effect)
