"""A game server in a thread, for the client's tests: it speaks the protocol, and produces the faults that a test sets.

`server.faults[seq] = fault` happens once, when the event with that `seq` of any turn is due: drop (all connections),
restart (drop, and forget the running turn), overtaken or overtaking (restart, and another client has played, or plays,
a turn of that number), silence (no more answers), hold (until cancelled), gap (it is not sent), or garbage (bytes that
are no message).
`early_cancels`: that many cancels find no turn, as if they had arrived before it.
`unanswered`: types of requests that get no answer.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import zmq

from animegamer_client.codec import Message, decode, encode

HEIGHT, WIDTH, FRAMES = 4, 6, 3
CHANNELS = {"rgb24": 3, "rgba32": 4, "bgra32": 4}
PADDING = 2
BUNDLE = {
    "name": "fake",
    "fingerprint": "f" * 64,
    "plan": "fast",
    "height": HEIGHT,
    "width": WIDTH,
    "frames": FRAMES,
    "fps": 8.0,
    "random_weights": False,
}
VALUES = {"stamina": 50, "social": 55, "entertainment": 50}
STRENGTHS = {"motion_level": 2, "social": 1, "entertainment": 0, "stamina": 0}


@dataclass
class FakeGame:
    session: str
    token: str
    seed: int
    turns: list[dict[str, Any]] = field(default_factory=list)
    closed: bool = False


@dataclass
class Running:
    game: FakeGame
    number: int
    instruction: str
    turn_id: str
    parent: str
    seq: int
    replayed: bool
    route: bytes


class FakeServer:
    """A fake server on two ports; `seen` holds every request in the order of arrival."""

    def __init__(self) -> None:
        self.faults: dict[int, str] = {}
        self.refusals: dict[str, list[str]] = {}
        self.seen: list[Message] = []
        self.games: dict[str, FakeGame] = {}
        self.event_s = 0.0
        self.early_cancels = 0
        self.unanswered: set[str] = set()
        self.state = "ready"
        self._greeted: dict[bytes, Message] = {}
        self._jobs: list[Running] = []
        self._held = self._silent = self._drop_now = False
        self._context = zmq.Context()
        self._turns = self._control = None
        self.port = 0
        while not self.port:
            self.port = self._bind_anywhere()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    @property
    def _running(self) -> Running | None:
        return self._jobs[0] if self._jobs else None

    def _job(self, game: FakeGame) -> int | None:
        return next((place for place, job in enumerate(self._jobs) if job.game is game), None)

    def drop_soon(self) -> None:
        """Have the server's thread drop all connections."""
        self._drop_now = True

    def kinds(self) -> list[str]:
        return [message.type for message in self.seen]

    def close(self) -> None:
        self._stop.set()
        self._thread.join(10)
        self._context.destroy(linger=0)

    def _bind_anywhere(self) -> int:
        turns, control = self._context.socket(zmq.ROUTER), self._context.socket(zmq.ROUTER)
        turns.linger = control.linger = 0
        port = turns.bind_to_random_port("tcp://127.0.0.1", 20_000, 32_000)  # as the real one
        try:
            control.bind(f"tcp://127.0.0.1:{port + 1}")
        except zmq.ZMQError:
            turns.close()
            control.close()
            return 0
        self._turns, self._control = turns, control
        return port

    def _drop(self) -> None:
        self._turns.close(linger=0)
        self._greeted.clear()
        self._turns = self._context.socket(zmq.ROUTER)
        self._turns.linger = 0
        for _ in range(200):
            with contextlib.suppress(zmq.ZMQError):
                self._turns.bind(self.address)
                return
            time.sleep(0.01)
        raise OSError("the port does not come free")

    def _serve(self) -> None:
        while not self._stop.is_set():
            if self._drop_now:
                self._drop_now = False
                self._drop()
            due = self._running is not None and not self._held and not self._silent
            poller = zmq.Poller()
            poller.register(self._turns, zmq.POLLIN)
            poller.register(self._control, zmq.POLLIN)
            for socket, _ in poller.poll(1000 * self.event_s if due else 20):
                self._read(socket)
            if due and self._running is not None and not self._silent:
                self._play(self._running)

    def _read(self, socket: Any) -> None:
        route, *frames = socket.recv_multipart()
        request = decode(frames)
        self.seen.append(request)
        if self._silent or request.type in self.unanswered:
            return

        def answer(kind: str, fields: dict[str, Any] | None = None, **header: Any) -> None:
            message = Message(kind, fields or {}, parent=request.id, **header)
            socket.send_multipart([route, *encode(message)])

        waiting = self.refusals.get(request.type)
        if waiting:
            answer("error", {"code": waiting.pop(0), "text": "not now", "do": "try later"}, session=request.session)
        elif socket is self._turns and request.type != "hello" and route not in self._greeted:
            answer("error", {"code": "hello_first", "text": "say hello first"})
        else:
            getattr(self, f"_on_{request.type}")(route, request, answer)

    def _on_hello(self, route: bytes, request: Message, answer: Any) -> None:
        self._greeted[route] = request
        limits = {"text_characters": 500, "header_bytes": 65536, "turns_a_minute": 60, "sessions": 8, "queue": 8}
        about = {"version": 1, "server": "fake 1", "protocol": "1.0", "bundle": BUNDLE, "capabilities": []}
        answer("welcome", {**about, "limits": limits, "state": self.state})

    def _on_ping(self, route: bytes, request: Message, answer: Any) -> None:
        answer("pong")

    def _on_status(self, route: bytes, request: Message, answer: Any) -> None:
        worker = {"state": "ready", "pid": 42, "restarts": 0, "resident_mib": 100.0}
        about = {"version": "1", "protocol": "1.0", "state": self.state, "bundle": "fake", "plan": "fast"}
        counts = {"uptime_s": 60.0, "turns_done": 1, "sessions": 1, "connections": 1, "queue": 0, "running": 0}
        answer("status", {**about, **counts, "worker": worker, "seconds": {"total": 1.5}})

    def _on_open(self, route: bytes, request: Message, answer: Any) -> None:
        token = request.fields.get("token")
        if token is None:
            self._opened(FakeGame("", "", request.fields.get("seed", 5)), answer, new=True)
        elif token in self.games:
            self._opened(self.games[token], answer)
        else:
            answer("error", {"code": "unknown_session", "text": "no such session"})

    def _opened(self, game: FakeGame, answer: Any, new: bool = False) -> None:
        if new:
            number = len(self.games) + 1
            game = replace(game, session=f"s{number}", token=f"token-{number}")
            self.games[game.token] = game
        values = VALUES if game.turns else dict.fromkeys(VALUES, 50)
        fields = {"token": game.token, "seed": game.seed, "history_turns": 2, "character": values}
        fields["turns"] = len(game.turns)
        if (place := self._job(game)) is not None:
            fields["running"] = {"turn": self._jobs[place].number, "turn_id": self._jobs[place].turn_id}
        answer("opened", fields, session=game.session)

    def _game(self, request: Message, answer: Any) -> FakeGame | None:
        game = self.games.get(request.fields["token"])
        if game is not None and not game.closed and game.session == request.session:
            return game
        code = "session_closed" if game is not None and game.closed else "unknown_session"
        answer("error", {"code": code, "text": "no such session"}, session=request.session)
        return None

    def _on_turn(self, route: bytes, request: Message, answer: Any) -> None:
        if (game := self._game(request, answer)) is None:
            return
        turn_id, text = request.fields["turn_id"], request.fields["instruction"].strip()
        number = next((n for n, turn in enumerate(game.turns, 1) if turn["turn_id"] == turn_id), 0)
        place = self._job(game)
        if place is not None:
            if self._jobs[place].turn_id == turn_id:
                self._jobs[place] = replace(self._jobs[place], route=route, parent=request.id)
            else:
                answer("error", {"code": "turn_running", "text": "one turn at a time"}, session=game.session)
        elif not text:
            answer("error", {"code": "instruction", "text": "the instruction is empty", "do": "say something"})
        else:
            number, replayed = number or len(game.turns) + 1, bool(number)
            self._jobs.append(Running(game, number, text, turn_id, request.id, 0, replayed, route))

    def _on_replay(self, route: bytes, request: Message, answer: Any) -> None:
        if (game := self._game(request, answer)) is None:
            return
        place, seq = self._job(game), request.fields["after_seq"] + 1
        if place is not None and self._jobs[place].number == request.turn:
            if self._held and place == 0:  # asked again by a client that lost patience: hold where it held
                self.faults[self._jobs[0].seq], self._held = "hold", False
            self._jobs[place] = replace(self._jobs[place], route=route, parent=request.id, seq=seq)
        elif request.turn <= len(game.turns):
            turn = game.turns[request.turn - 1]
            parts = turn["instruction"], turn["turn_id"], request.id, seq, True, route
            self._jobs.append(Running(game, request.turn, *parts))
        else:
            answer("error", {"code": "no_such_turn", "text": "no such turn"}, session=game.session, turn=request.turn)

    def _on_cancel(self, route: bytes, request: Message, answer: Any) -> None:
        ours = next((job for job in self._jobs if job.game.session == request.session), None)
        if self.early_cancels:
            self.early_cancels, ours = self.early_cancels - 1, None
        answer("cancelling", {"running": ours is not None}, session=request.session)
        if ours is not None:
            self._end(ours, "cancelled")

    def _on_rewind(self, route: bytes, request: Message, answer: Any) -> None:
        if (game := self._game(request, answer)) is not None:
            del game.turns[request.fields["turn"] :]
            answer("rewound", {"turns": len(game.turns), "character": VALUES}, session=game.session)

    def _on_branch(self, route: bytes, request: Message, answer: Any) -> None:
        if (game := self._game(request, answer)) is not None:
            shared = game.turns[: request.fields["turn"]]
            self._opened(FakeGame("", "", request.fields.get("seed", game.seed), list(shared)), answer, new=True)

    def _on_list(self, route: bytes, request: Message, answer: Any) -> None:
        if (game := self._game(request, answer)) is not None:
            before = request.fields.get("before", len(game.turns) + 1)
            first = max(1, before - 2)
            turns = [{**turn, "turn": n} for n, turn in enumerate(game.turns, 1) if first <= n < before]
            answer("listed", {"turns": turns, "more": first > 1}, session=game.session)

    def _on_close(self, route: bytes, request: Message, answer: Any) -> None:
        if (game := self._game(request, answer)) is not None:
            game.closed = True
            answer("closed", session=game.session)

    def _on_export(self, route: bytes, request: Message, answer: Any) -> None:
        if (game := self._game(request, answer)) is not None:
            count = len(game.turns)
            for n in range(1, count + 1):
                answer("progress", {"step": n, "steps": count, "seconds_left": 0.0}, session=game.session)
            files = [f"turn-{n:03d}.mp4" for n in range(1, count + 1)] + ["game.json"]
            answer("exported", {"folder": "exports/s1-1", "turns": count, "files": files}, session=game.session)

    def _play(self, running: Running) -> None:
        """Send the next event of the running turn, or produce the fault set for it."""
        fault = self.faults.pop(running.seq, "")
        if fault == "drop":
            self._drop()
        elif fault == "restart":
            self._jobs.clear()
            self._drop()
        elif fault in ("overtaken", "overtaking"):
            self._jobs.clear()
            turn = {"turn_id": "another's", "instruction": "Tobo sleeps.", **STRENGTHS}
            if fault == "overtaken":
                running.game.turns.append(turn)
            else:
                parts = running.number, turn["instruction"], turn["turn_id"], "its request", 0, False, b"its route"
                self._jobs.append(Running(running.game, *parts))
                self._held = True
            self._drop()
        elif fault == "silence":
            self._silent = True
        elif fault == "hold":
            self._held = True
        elif fault == "garbage":
            self._turns.send_multipart([running.route, b"what", b"ever"])
        else:
            event = turn_events(running, self._greeted.get(running.route))[running.seq]
            self._jobs[0] = replace(running, seq=running.seq + 1)
            if fault == "gap":
                return
            if event.type == "done":
                del self._jobs[0]
                if not running.replayed:
                    turn = {"turn_id": running.turn_id, "instruction": running.instruction, **STRENGTHS}
                    running.game.turns.append(turn)
                event = replace(event, fields={**event.fields, "turns": len(running.game.turns)})
            self._say(running, event)

    def _end(self, running: Running, code: str) -> None:
        if running is self._running:
            # A hold was ordered for this turn, whether it came that far or not.
            self._held = False
            self.faults = {seq: fault for seq, fault in self.faults.items() if fault != "hold"}
        self._jobs.remove(running)
        fields = {"code": code, "text": f"the turn ended: {code}"}
        self._say(running, Message("error", fields, session=running.game.session, turn=running.number))

    def _say(self, running: Running, message: Message) -> None:
        self._turns.send_multipart([running.route, *encode(replace(message, parent=running.parent))])


def turn_events(running: Running, hello: Message | None) -> list[Message]:
    """The events of a turn; the pictures depend on seed, turn and index, as a real server's do."""
    wishes = hello.fields if hello is not None else {}
    accepted = {
        "turn_id": running.turn_id,
        "place": 0,
        "estimate_s": 1.0,
        "instruction": running.instruction,
        "replayed": running.replayed,
    }
    state = {**STRENGTHS, "character": VALUES, "shown": {**VALUES, "entertainment": 45}, "motion_scope": 2.5}
    messages = [Message("accepted", accepted), Message("state", state)]
    messages += [Message("progress", {"step": k, "steps": 2, "seconds_left": 0.1 * (2 - k)}) for k in (1, 2)]
    if wishes.get("codec", "raw") != "mp4":
        pixel_format = wishes.get("pixel_format", "rgba32")
        for index in range(FRAMES):
            rows = frame_rows(running.game.seed, running.number, index, CHANNELS[pixel_format])
            layout = {"dtype": "uint8", "width": WIDTH, "height": HEIGHT, "stride": rows.shape[1]}
            layout |= {"pixel_format": pixel_format, "codec": "raw", "index": index, "count": FRAMES}
            data = rows.tobytes()
            if wishes.get("codec") == "jpeg":
                layout |= {"codec": "jpeg", "stride": 0}
                data = b"\xff\xd8 picture"
            messages.append(Message("frame", layout, buffers=(data,)))
    if wishes.get("clip") or wishes.get("codec") == "mp4":
        for index, data in enumerate((b"ftyp", b"moof")):
            fields = {"index": index, "last": index == 1, "codec": "mp4"}
            messages.append(Message("clip", fields, buffers=(data,)))
    seconds = {"queue": 0.0, "predictor": 0.1, "denoiser": 0.2, "vae": 0.3, "total": 0.6}
    messages.append(Message("done", {"seconds": seconds, "turns": 0}))
    place = {"session": running.game.session, "turn": running.number}
    return [replace(message, seq=seq, **place) for seq, message in enumerate(messages)]


def frame_rows(seed: int, turn: int, index: int, channels: int) -> np.ndarray:
    """The rows of a picture as sent, with padding at the end of each, uint8 [height, stride]."""
    rows = np.full((HEIGHT, WIDTH * channels + PADDING), 10 * turn + index + seed, np.uint8)
    rows[:, -PADDING:] = 255
    return rows


@contextlib.contextmanager
def fake_server() -> Iterator[FakeServer]:
    """A server that runs for the length of a test."""
    server = FakeServer()
    try:
        yield server
    finally:
        server.close()
