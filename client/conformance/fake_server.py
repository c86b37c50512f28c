"""A game server in a thread that speaks the protocol and injects faults.

`server.faults[seq] = fault` happens once, when the event with that `seq` of any turn is due:

    drop         all connections are lost            gap        this event is not sent
    restart      and the running turn is forgotten   swap       it is sent after the next one
    overtaken    and another client played that turn overtaking and another client plays it now
    die:S        nothing listens for S seconds       twice      it is sent twice
    silence      no more answers at all              garbage    bytes that are not a message
    hold         nothing more until it is cancelled  header:N   a header of N bytes
    pause:S      nothing for S seconds               error:CODE the turn ends with this error
    worker       the worker is restarted             picture    its fields do not fit its buffer

`refusals[type]`: codes with which the next requests of a type are refused. `unanswered[type]`: how many get no answer.
`early_cancels`: how many cancels find no turn, as if they had arrived before it.
`minor`: the minor version that it speaks; one above 1 sends unknown messages, keys and fields.
`offers`: instructions that it offers as ready, after `opened` and `done`; a `wish` replaces them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import replace
from typing import Any

import msgpack
import zmq
from client.conformance.fake_turns import (
    ANSWERS,
    PNG,
    SEEN,
    STATUS,
    STRENGTHS,
    TEXT_CHARACTERS,
    UNDERSTOOD,
    UNDERSTOOD_OTHERWISE,
    VALUES,
    FakeGame,
    Running,
    turn_events,
    welcome,
)
from client.conformance.ports import ReservedPorts

from animegamer_client.codec import Message, decode, encode

WISHES = 2
"""Turns that it plays ahead once a client wishes for some."""
CONTROL_REQUESTS = frozenset({"hello", "cancel", "status", "ping"})


class FakeServer:
    """A fake server on two ports; `seen` holds every request in order of arrival.

    secret_key: CURVE, in Z85; every client that knows the public key is accepted.
    """

    def __init__(self, secret_key: bytes | None = None, minor: int = 0) -> None:
        self.faults: dict[int, str] = {}
        self.refusals: dict[str, list[str]] = {}
        self.unanswered: dict[str, int] = {}
        self.minor = minor
        self.offers: list[str] = []
        self._secret_key = secret_key
        self._later: tuple[Running, Message] | None = None
        self.seen: list[Message] = []
        self.games: dict[str, FakeGame] = {}
        self.event_s = 0.0
        self.early_cancels = 0
        self.state = "ready"
        self._greeted: dict[bytes, Message] = {}
        self._jobs: list[Running] = []
        self._held = self._silent = self._drop_now = False
        self._quiet_until = 0.0
        self._context = zmq.Context()
        self._ports = ReservedPorts()
        self.port = self._ports.port
        self._turns, self._control = self._bound(self.port), self._bound(self.port + 1)
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
        self._drop_now = True

    def kinds(self) -> list[str]:
        return [message.type for message in self.seen]

    def close(self) -> None:
        self._stop.set()
        self._thread.join(10)
        self._context.destroy(linger=0)
        self._ports.close()

    def _bound(self, port: int) -> Any:
        """A new socket at this port, once the previous one has left it."""
        socket = self._context.socket(zmq.ROUTER)
        socket.linger = 0
        if self._secret_key is not None:
            socket.curve_server, socket.curve_secretkey = True, self._secret_key
        for _ in range(200):
            with contextlib.suppress(zmq.ZMQError):
                socket.bind(f"tcp://127.0.0.1:{port}")
                return socket
            time.sleep(0.01)
        raise OSError(f"port {port} stays in use")

    def _drop(self) -> None:
        self._turns.close(linger=0)
        self._greeted.clear()
        self._later = None
        self._turns = self._bound(self.port)

    def _die(self, seconds: float) -> None:
        """Leave both ports for this long; the running turn is forgotten, finished ones are kept."""
        self._jobs.clear()
        for socket in (self._turns, self._control):
            socket.close(linger=0)
        self._stop.wait(seconds)
        self._control = self._bound(self.port + 1)
        self._drop()

    def _serve(self) -> None:
        while not self._stop.is_set():
            if self._drop_now:
                self._drop_now = False
                self._drop()
            due = self._running is not None and not self._held and not self._silent
            due = due and time.monotonic() >= self._quiet_until
            poller = zmq.Poller()
            poller.register(self._turns, zmq.POLLIN)
            poller.register(self._control, zmq.POLLIN)
            for socket, _ in poller.poll(round(1000 * self.event_s) if due else 20):
                self._read(socket)
            if due and self._running is not None and not self._silent:
                self._play(self._running)

    def _read(self, socket: Any) -> None:
        route, *frames = socket.recv_multipart()
        request = decode(frames)
        self.seen.append(request)
        if self._silent:
            return
        if self.unanswered.get(request.type):
            self.unanswered[request.type] -= 1
            return

        def answer(kind: str, fields: dict[str, Any] | None = None, **header: Any) -> None:
            message = Message(kind, fields or {}, parent=request.id, **header)
            socket.send_multipart([route, *encode(message)])
            if kind == "opened" and self.offers:
                self._offer(route, str(message.session))

        waiting = self.refusals.get(request.type)
        if waiting:
            code = waiting.pop(0)
            why = {"answer": ANSWERS} if code == "not_understood" else {}
            answer("error", {"code": code, "text": "not now", "do": "try later", **why}, session=request.session)
        elif socket is self._turns and request.type != "hello" and route not in self._greeted:
            answer("error", {"code": "hello_first", "text": "say hello first"})
        elif socket is self._control and request.type not in CONTROL_REQUESTS:
            answer("error", {"code": "unknown_type", "text": f"{request.type} does not belong on the control port"})
        else:
            getattr(self, f"_on_{request.type}")(route, request, answer)

    def _on_hello(self, route: bytes, request: Message, answer: Any) -> None:
        self._greeted[route] = request
        answer("welcome", {**welcome(self.minor, request.fields.get("minor", 0)), "state": self.state})

    def _on_ping(self, route: bytes, request: Message, answer: Any) -> None:
        answer("pong")

    def _on_status(self, route: bytes, request: Message, answer: Any) -> None:
        answer("status", {**STATUS, "state": self.state})

    def _on_open(self, route: bytes, request: Message, answer: Any) -> None:
        token, picture = request.fields.get("token"), bytes(request.buffers[0]) if request.buffers else PNG
        if not picture.startswith(PNG):
            answer("error", {"code": "picture", "text": "no picture", "do": "send another"})
        elif token is None:
            seen = {"understood": SEEN} if request.buffers and request.fields["motion"] else {}
            self._opened(FakeGame("", "", request.fields.get("seed", 5)), answer, new=True, **seen)
        elif token in self.games:
            self._opened(self.games[token], answer)
        else:
            answer("error", {"code": "unknown_session", "text": "no such session"})

    def _opened(self, game: FakeGame, answer: Any, new: bool = False, **more: Any) -> None:
        if new:
            number = len(self.games) + 1
            game = replace(game, session=f"s{number}", token=f"token-{number}")
            self.games[game.token] = game
        values = VALUES if game.turns else dict.fromkeys(VALUES, 50)
        fields = {"token": game.token, "seed": game.seed, "history_turns": 2, "character": values, **more}
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
        elif not 0 < len(text) <= TEXT_CHARACTERS:
            found = f"the instruction has {len(text)} characters; expected 1 to {TEXT_CHARACTERS}"
            answer("error", {"code": "instruction", "text": found, "do": "change it"}, session=game.session)
        else:
            number, replayed = number or len(game.turns) + 1, bool(number)
            self._jobs.append(Running(game, number, text, turn_id, request.id, 0, replayed, route))

    def _on_wish(self, route: bytes, request: Message, answer: Any) -> None:
        if (game := self._game(request, answer)) is not None:
            self.offers = request.fields["instructions"][:WISHES]
            place = self._job(game)
            turn = len(game.turns) + 1 if place is None else self._jobs[place].number + 1
            answer("wished", {"instructions": self.offers}, session=game.session, turn=turn)
            if place is None:
                self._offer(route, game.session)

    def _on_replay(self, route: bytes, request: Message, answer: Any) -> None:
        if (game := self._game(request, answer)) is None:
            return
        place, seq, number = self._job(game), request.fields["after_seq"] + 1, request.turn or 0
        if place is not None and self._jobs[place].number == number:
            if self._held and place == 0:  # requested again by a client that lost patience: hold where it held
                self.faults[self._jobs[0].seq], self._held = "hold", False
            self._jobs[place] = replace(self._jobs[place], route=route, parent=request.id, seq=seq)
        elif number <= len(game.turns):
            turn = game.turns[number - 1]
            text, turn_id = turn["instruction"], turn["turn_id"]
            self._jobs.append(Running(game, number, text, turn_id, request.id, seq, True, route))
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
        fault, _, value = self.faults.pop(running.seq, "").partition(":")
        if fault == "drop":
            self._drop()
        elif fault == "restart":
            self._jobs.clear()
            self._drop()
        elif fault in ("overtaken", "overtaking"):
            self._jobs.clear()
            others, text = "another's", "Tobo sleeps."
            if fault == "overtaken":
                running.game.turns.append({"turn_id": others, "instruction": text, **STRENGTHS})
            else:
                one = Running(running.game, running.number, text, others, "its request", 0, False, b"its route")
                self._jobs.append(one)
                self._held = True
            self._drop()
        elif fault == "die":
            self._die(float(value))
        elif fault == "silence":
            self._silent = True
        elif fault == "hold":
            self._held = True
        elif fault == "pause":
            self._quiet_until = time.monotonic() + float(value)
        elif fault == "garbage":
            self._turns.send_multipart([running.route, b"what", b"ever"])
        elif fault == "header":
            head = msgpack.packb({"type": "progress", "parent": running.parent, "more": "x" * int(value)})
            self._turns.send_multipart([running.route, b"AGRT\x01", head])
        elif fault == "worker":
            self._send_to(running, self._about(running, "restarting", {"attempt": 1, "retry_in_s": 0.1}))
        elif fault == "error":
            self._end(running, value)
        else:
            self._send_event(running, fault)

    def _send_event(self, running: Running, fault: str) -> None:
        event = turn_events(running, self._greeted.get(running.route))[running.seq]
        self._jobs[0] = replace(running, seq=running.seq + 1)
        if event.type == "done":
            del self._jobs[0]
            if not running.replayed:
                turn = {"turn_id": running.turn_id, "instruction": running.instruction, **STRENGTHS}
                running.game.turns.append(turn)
            event = replace(event, fields={**event.fields, "turns": len(running.game.turns)})
        if fault == "gap":
            return
        if fault == "swap":
            self._later = (running, event)
            return
        if fault == "picture":
            event = replace(event, buffers=(b"short",))
        for _ in range(2 if fault == "twice" else 1):
            self._send_to(running, event)
        hello = self._greeted.get(running.route)
        if event.type == "accepted" and self.minor and hello is not None and hello.fields.get("minor"):
            otherwise = any(word in running.instruction for word in UNDERSTOOD_OTHERWISE["unknown"])
            fields = UNDERSTOOD_OTHERWISE if otherwise else UNDERSTOOD
            told = {"answer": ANSWERS} if self.minor > 2 else {}
            self._send_to(running, self._about(running, "understood", {**fields, **told}))
        if self.minor > 1:
            self._send_to(running, self._about(running, "weather", {"rain": None}))
        if self._later is not None:
            late, self._later = self._later, None
            self._send_to(*late)
        if event.type == "done" and self.offers:
            self._offer(running.route, running.game.session)

    def _offer(self, route: bytes, session: str) -> None:
        if self._greeted[route].fields.get("minor", 0) > 1:
            game = next(game for game in self.games.values() if game.session == session)
            offer = Message("offer", {"instructions": self.offers}, session=session, turn=len(game.turns) + 1)
            self._turns.send_multipart([route, *encode(offer)])

    def _end(self, running: Running, code: str) -> None:
        if running is self._running:
            # A hold was scheduled for this turn, whether it got that far or not.
            self._held = False
            self.faults = {seq: fault for seq, fault in self.faults.items() if fault != "hold"}
        self._jobs.remove(running)
        fields = {"code": code, "text": f"the turn ended: {code}"}
        self._send_to(running, self._about(running, "error", fields))

    def _about(self, running: Running, kind: str, fields: dict[str, Any]) -> Message:
        return Message(kind, fields, session=running.game.session, turn=running.number)

    def _send_to(self, running: Running, message: Message) -> None:
        self._turns.send_multipart([running.route, *encode(replace(message, parent=running.parent))])
