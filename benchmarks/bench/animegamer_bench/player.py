"""A plain ZeroMQ client that plays turns and times their events. One loop can run several of them.

Knows the protocol as a client does; nothing of what is measured with it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import zmq

from animegamer_rt.errors import ServerError
from animegamer_rt.serving.wire import SERVER_LIMITS, Message, decode, encode

TIMEOUT_S = 120.0
"""Longest wait for a message. A turn sends progress more often, even on a slow machine."""
INSTRUCTION = "One waits."
STALLED_BYTES = 65_536
ENGINES = ("reader", "predictor", "denoiser", "vae")
"""Stages that run a network."""


@dataclass(slots=True)
class TurnTiming:
    """Filled event by event; complete once `done_at` is set. bytes: of the frames or the clip."""

    asked_at: float
    state_at: float = 0.0
    denoised_at: float = 0.0
    first_picture_at: float = 0.0
    last_picture_at: float = 0.0
    done_at: float = 0.0
    bytes: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)

    def note(self, message: Message, at: float) -> None:
        """Add an event and the time when it came."""
        if message.type == "state":
            self.state_at = at
        elif message.type == "progress":
            self.denoised_at = at
        elif message.type in ("frame", "clip"):
            self.first_picture_at = self.first_picture_at or at
            self.last_picture_at = at
            self.bytes += len(message.buffers[0])
        elif message.type == "done":
            self.done_at, self.seconds = at, message.fields["seconds"]

    @property
    def turn_s(self) -> float:
        """From the request to `done`."""
        return self.done_at - self.asked_at

    @property
    def engines_s(self) -> float:
        """Seconds of reader, predictor, denoiser and vae."""
        return sum(self.seconds.get(stage, 0.0) for stage in ENGINES)

    @property
    def overhead_s(self) -> float:
        """Everything but the engines."""
        return self.turn_s - self.engines_s

    @property
    def outside_s(self) -> float:
        """Seconds outside the worker's turn: the server, the queue, the store's transaction, the last message."""
        return self.turn_s - self.seconds["total"]

    @property
    def state_s(self) -> float:
        """From the request to the game state."""
        return self.state_at - self.asked_at

    @property
    def state_overhead_s(self) -> float:
        """The same without the reader and the predictor."""
        return self.state_s - self.seconds.get("reader", 0.0) - self.seconds["predictor"]

    @property
    def first_frame_s(self) -> float:
        """From the request to the first frame."""
        return self.first_picture_at - self.asked_at

    @property
    def clip_s(self) -> float:
        """From the end of denoising to the last picture: decoding, encoding and transfer, one over the other."""
        return self.last_picture_at - self.denoised_at


class Player:
    """One connection with one session at a time. stalled: its socket buffers as little as possible."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], port: int, *, stalled: bool = False, **hello: Any
    ) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.linger = 0
        if stalled:
            self.socket.rcvhwm, self.socket.rcvbuf = 1, STALLED_BYTES
        self.socket.connect(f"tcp://127.0.0.1:{port}")
        self._context, self._control_port = context, port + 1
        self._session, self._token = "", ""
        self._turn: TurnTiming | None = None
        self._ask("hello", {"versions": [1], "client": "bench serve", **hello})

    def __enter__(self) -> Player:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def open(self, **fields: Any) -> None:
        """Open a new session; the one before stays on the server."""
        opened = self._ask("open", {"seed": 7, **fields})
        assert opened.session is not None
        self._session, self._token = opened.session, opened.fields["token"]

    def begin(self, instruction: str = INSTRUCTION) -> None:
        """Ask for a turn."""
        fields = {"instruction": instruction, "turn_id": uuid.uuid4().hex, "token": self._token}
        self._turn = TurnTiming(time.perf_counter())
        self._send("turn", fields)

    def take(self) -> TurnTiming | None:
        """Receive one message; returns the turn if that was its end. Raises ServerError for an error or a timeout."""
        message = self._receive()
        assert self._turn is not None
        self._turn.note(message, time.perf_counter())
        return self._turn if message.type == "done" else None

    def play(self, instruction: str = INSTRUCTION) -> TurnTiming:
        """Play a whole turn."""
        self.begin(instruction)
        while True:
            if (turn := self.take()) is not None:
                return turn

    def cancel(self) -> float | None:
        """Begin a turn and cancel it at its first denoising step; seconds from then until the turn has ended.

        None if the turn was done before the cancel reached it.
        """
        self.begin()
        while self._receive().type != "progress":
            pass
        with self._context.socket(zmq.DEALER) as control:
            control.linger = 0
            control.connect(f"tcp://127.0.0.1:{self._control_port}")
            asked = Message("cancel", {"token": self._token}, uuid.uuid4().hex, session=self._session)
            started = time.perf_counter()
            control.send_multipart(encode(asked))
            while (message := self._receive(also="cancelled")).type not in ("done", "error"):
                pass
            ended = time.perf_counter()
            control.poll(int(TIMEOUT_S * 1000))  # its answer, `cancelling`
        return ended - started if message.type == "error" else None

    def _ask(self, type: str, fields: dict[str, Any]) -> Message:
        self._send(type, fields)
        return self._receive()

    def _send(self, type: str, fields: dict[str, Any]) -> None:
        message = Message(type, fields, uuid.uuid4().hex, session=self._session or None)
        self.socket.send_multipart(encode(message))

    def _receive(self, also: str = "") -> Message:
        """The next message. also: the code of an error that is an answer, too. Raises ServerError for any other."""
        if not self.socket.poll(int(TIMEOUT_S * 1000)):
            raise ServerError(f"the server sent nothing for {TIMEOUT_S:g} s")
        parts = [frame.buffer for frame in self.socket.recv_multipart(copy=False)]
        message = decode(parts, SERVER_LIMITS, check=False)
        if message.type == "error" and message.fields["code"] != also:
            raise ServerError("the server refused", found=f"{message.fields['code']}: {message.fields['text']}")
        return message


def play_together(players: Sequence[Player], turns: int) -> list[TurnTiming]:
    """All players at once, each `turns` turns one after the other; returns the turns in the order of their ends."""
    poller, played, left = zmq.Poller(), [], dict.fromkeys(players, turns)
    of_socket = {player.socket: player for player in players}
    for player in players:
        poller.register(player.socket, zmq.POLLIN)
        player.begin()
    while any(left.values()):
        ready = poller.poll(int(TIMEOUT_S * 1000))
        if not ready:
            raise ServerError(f"the server sent nothing for {TIMEOUT_S:g} s")
        for socket, _ in ready:
            player = of_socket[socket]
            if (turn := player.take()) is not None:
                played.append(turn)
                left[player] -= 1
                if left[player]:
                    player.begin()
    return played
