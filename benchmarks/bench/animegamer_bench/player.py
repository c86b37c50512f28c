"""A server process, and plain ZeroMQ clients that play turns on it and time their events."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import zmq

from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import ServerError
from animegamer_rt.profiling.child_process import child_command
from animegamer_rt.serving.server.config_file import print_config
from animegamer_rt.serving.server.options import ServeOptions
from animegamer_rt.serving.wire.codec import SERVER_LIMITS, Message, decode, encode

from .turns import describe_failure

START_S, END_S, LOOK_S = 300.0, 30.0, 0.05
LIMITS = ServeOptions(turns_per_minute=0, sessions=100_000, connections=1000, queue=1000)
"""Settings that never refuse a turn."""
TIMEOUT_S = 120.0
"""Timeout for a message. A turn sends progress more often, even on a slow machine."""
INSTRUCTION = "One waits."
ENGINES = ("reader", "predictor", "denoiser", "vae")
"""Stages that run a network."""


class ServerProcess:
    """A server with the state folder `state`, ready inside `with`."""

    def __init__(self, bundle: Path, device: str, state: Path, plan: str | None = None, workers: int = 1) -> None:
        state.mkdir(parents=True)
        self.device = device
        self._outputs = state / "stdout.txt", state / "stderr.txt"
        options = replace(LIMITS, bundle=str(bundle), plan=plan, engines=EngineConfig(device), workers=workers)
        options = replace(options, port=0, state_dir=state)
        settings = state / "serve.toml"
        settings.write_text(print_config(options), encoding="utf-8")
        command = child_command("animegamer_rt", "serve", "--config", str(settings))
        # On Windows the signal that ends a server goes to a whole process group; elsewhere Ctrl-C should reach both.
        group, self._end_signal = 0, signal.SIGTERM
        if sys.platform == "win32":
            group, self._end_signal = subprocess.CREATE_NEW_PROCESS_GROUP, signal.CTRL_BREAK_EVENT
        with self._outputs[0].open("wb") as output, self._outputs[1].open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, creationflags=group
            )
        self.port = 0

    def __enter__(self) -> ServerProcess:
        try:
            self.port = int(self._await(0, "ready tcp://").split()[1].rpartition(":")[2])
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _await(self, stream: int, text: str) -> str:
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            lines = self._outputs[stream].read_text(encoding="utf-8", errors="replace").split("\n")
            found = [line for line in lines[:-1] if text in line]
            if found:
                return found[0]
            if self._process.poll() is not None:
                break
            time.sleep(LOOK_S)
        output = self._outputs[1].read_text(encoding="utf-8", errors="replace")
        raise ServerError("the measured server did not start", found=describe_failure(output))

    def _end(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(self._end_signal)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


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
        """Records an event and its arrival time."""
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

    def figures(self) -> dict[str, float]:
        """Seconds of the whole turn, by name.

        turn_s, state_s, first_frame_s: from the request to `done`, the game state, the first frame. engines_s: of
        ENGINES. overhead_s: everything except the engines. outside_s: outside the worker's turn: the server, the queue,
        the store's transaction, the last message. state_overhead_s: state_s without the reader and the predictor.
        clip_s: from the end of denoising to the last frame: decoding, encoding and transfer, overlapping. vae_s: the
        engine's share of it.
        """
        turn_s, state_s = self.done_at - self.asked_at, self.state_at - self.asked_at
        engines_s = sum(self.seconds.get(stage, 0.0) for stage in ENGINES)
        return {
            "turn_s": turn_s,
            "state_s": state_s,
            "first_frame_s": self.first_picture_at - self.asked_at,
            "engines_s": engines_s,
            "overhead_s": turn_s - engines_s,
            "outside_s": turn_s - self.seconds["total"],
            "state_overhead_s": state_s - self.seconds.get("reader", 0.0) - self.seconds["predictor"],
            "clip_s": self.last_picture_at - self.denoised_at,
            "vae_s": self.seconds["vae"],
        }


class Player:
    """One connection with one session at a time."""

    def __init__(self, port: int, **hello: Any) -> None:
        self.socket = _socket()
        self.socket.connect(f"tcp://127.0.0.1:{port}")
        self._control_port, self._session, self._token = port + 1, "", ""
        self._turn: TurnTiming | None = None
        self._ask("hello", {"versions": [1], "client": "bench serve", **hello})

    def __enter__(self) -> Player:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def open(self, **fields: Any) -> None:
        """Opens a new session; the previous one stays on the server."""
        opened = self._ask("open", {"seed": 7, **fields})
        assert opened.session is not None
        self._session, self._token = opened.session, opened.fields["token"]

    def begin(self, instruction: str = INSTRUCTION) -> None:
        """Requests a turn."""
        fields = {"instruction": instruction, "turn_id": uuid.uuid4().hex, "token": self._token}
        self._turn = TurnTiming(time.perf_counter())
        self._send("turn", fields)

    def take(self) -> TurnTiming | None:
        """Receives one message; returns the turn if that was its end. Raises ServerError for an error or a timeout."""
        message = self._receive()
        assert self._turn is not None
        self._turn.note(message, time.perf_counter())
        return self._turn if message.type == "done" else None

    def play(self, instruction: str = INSTRUCTION) -> TurnTiming:
        """Plays a whole turn."""
        self.begin(instruction)
        while (turn := self.take()) is None:
            pass
        return turn

    def cancel(self) -> float | None:
        """Starts a turn and cancels it at its first denoising step; seconds from then until the turn has ended.

        None if the turn finished before the cancel arrived.
        """
        self.begin()
        while self._receive().type != "progress":
            pass
        with _socket() as control:
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
        """The next message. also: an error code that is a valid answer. Raises ServerError for any other."""
        if not self.socket.poll(int(TIMEOUT_S * 1000)):
            raise ServerError(f"the server sent nothing for {TIMEOUT_S:g} s")
        parts = [frame.buffer for frame in self.socket.recv_multipart(copy=False)]
        message = decode(parts, SERVER_LIMITS, check=False)
        if message.type == "error" and message.fields["code"] != also:
            raise ServerError("the server refused", found=f"{message.fields['code']}: {message.fields['text']}")
        return message


def _socket() -> zmq.Socket[bytes]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
    socket = context.socket(zmq.DEALER)
    socket.linger = 0
    return socket


def play_together(turns: Mapping[Player, int]) -> list[TurnTiming]:
    """All players concurrently, each with a number of sequential turns; returns the turns in order of completion."""
    poller, played, left = zmq.Poller(), list[TurnTiming](), dict(turns)
    of_socket = {player.socket: player for player in left}
    for player in turns:
        player.begin()
    for socket in of_socket:
        poller.register(socket, zmq.POLLIN)
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
