"""A real `animegamer-rt serve` in a process of its own, and a client of plain ZeroMQ to speak to it.

Every message that comes back is decoded with the protocol's own checks: each test also holds the server to its table.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import zmq

from animegamer_rt.cli import main
from animegamer_rt.serving.wire.codec import SERVER_LIMITS, Message, decode, encode

SOON = "from animegamer_rt.serving.server import workers; workers.BACKOFF_S = 0.05"
"""Workers that died are started again soon."""
FULL_SIZE = ("--frame-size", "720x480")
"""Options of a server with frames of 1.4 MB, in RGBA, from simulated engines."""
TIMEOUT_S = 60.0
"""Longest wait for anything; only a failing test waits for so long."""


class LiveServer:
    """Started on a free pair of ports; `with` ends it. `code` runs before it in its process (limits, rights).

    settings: of its `--config` file.
    """

    def __init__(
        self,
        bundle: Path,
        state: Path,
        *options: str,
        device: str = "simulated:0.05",
        code: str = "",
        **settings: object,
    ) -> None:
        arguments = serve_arguments(bundle, state, *options, device=device, **settings)
        program = f"import sys\n{code}\n{SOON}\nfrom animegamer_rt.cli import main\nsys.exit(main(sys.argv[1:]))"
        self.state = state
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        self._lines: dict[str, queue.Queue[str]] = {"stdout": queue.Queue(), "stderr": queue.Queue()}
        self.said: list[str] = []
        for name in self._lines:
            threading.Thread(target=self._read, args=(name,), daemon=True).start()
        self.port = 0

    def listening(self) -> LiveServer:
        """Wait until its sockets are bound; the worker still loads."""
        line = self._await("stderr", "listening on ")
        self.port = int(line.split("listening on ")[1].split(",")[0].rsplit(":", 1)[1])
        return self

    def ready(self) -> LiveServer:
        """Wait until it says that it is ready."""
        line = self._await("stdout", "ready tcp://")
        self.port = int(line.split()[1].rsplit(":", 1)[1])
        assert line == f"ready tcp://127.0.0.1:{self.port} (control {self.port + 1})"
        return self

    def client(self, configure: Callable[[Any], None] | None = None, **hello: Any) -> RawClient:
        """A client that has said hello."""
        client = RawClient(self.port, configure=configure)
        client.ask("hello", {"versions": [1], "client": "test", **hello}, answer="welcome")
        return client

    @property
    def metrics(self) -> str:
        """Address of its page for Prometheus."""
        return next(line.rpartition(" ")[2] for line in self.said if "metrics on http://127.0.0.1:" in line)

    def status(self) -> dict[str, Any]:
        """Fields of `status`."""
        with RawClient(self.port) as client:
            return dict(client.ask("status", control=True, answer="status").fields)

    def await_status(self, wanted: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """The first status that is as wanted."""
        with RawClient(self.port) as client:
            for _ in until_timeout():
                fields = dict(client.ask("status", control=True, answer="status").fields)
                if wanted(fields):
                    return fields
        raise AssertionError(f"the server never came to be so; last: {fields}")

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the exit code."""
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT_S)

    def __enter__(self) -> LiveServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        if error is not None:
            print("\n".join(["-- what the server said:", *self.said]))
            log = self.state / "worker.log"
            if log.is_file():
                print("-- the worker:", log.read_text()[-2000:], sep="\n")

    def _read(self, name: str) -> None:
        stream = getattr(self.process, name)
        with stream:
            for line in stream:
                self.said.append(line.rstrip())
                self._lines[name].put(line.rstrip())

    def _await(self, name: str, text: str) -> str:
        for _ in until_timeout():
            try:
                line = self._lines[name].get(timeout=0.05)
            except queue.Empty:
                assert self.process.poll() is None, f"the server ended: {self.said}"
                continue
            if text in line:
                return line
        raise AssertionError(f"the server never said {text!r}: {self.said}")


def serve_arguments(bundle: Path, state: Path, *options: str, device: str, **settings: object) -> list[str]:
    """The command line of a server. Writes the settings, if there are any, into the file that it names."""
    command = ["serve", "--bundle", str(bundle), "--state-dir", str(state), "--device", device, "--port", "0", *options]
    if not settings:
        return command
    path = Path(f"{state}.toml")
    path.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()), encoding="utf-8")
    return [*command, "--config", str(path)]


def refusal(bundle: Path, state: Path, *options: str, code: str = "", **settings: object) -> tuple[int, str]:
    """Exit code and last words of a server that cannot start: in this process, unless `code` runs before it."""
    if not code:
        with contextlib.redirect_stderr(io.StringIO()) as stderr:
            result = main(serve_arguments(bundle, state, *options, device="simulated:0.05", **settings))
        return result, stderr.getvalue()
    with LiveServer(bundle, state, *options, code=code, **settings) as server:
        result = server.process.wait(TIMEOUT_S)
        for _ in until_timeout():
            if any(line.startswith("error:") for line in server.said):
                break
        return result, "\n".join(server.said)


def gone(pid: int) -> bool:
    """Whether the process has ended, even if nobody asked for its exit code yet."""
    stat = Path(f"/proc/{pid}/stat")
    return not stat.is_file() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def until_timeout() -> Iterator[None]:
    """Rounds of a wait, 10 ms apart, until until_timeout is at an end."""
    until = time.monotonic() + TIMEOUT_S
    while time.monotonic() < until:
        yield
        time.sleep(0.01)


@dataclass(frozen=True)
class Game:
    """An open session."""

    session: str
    token: str
    opened: Message


class RawClient:
    """Both sockets of one player. `routing` None lets the library choose, as clients should."""

    def __init__(self, port: int, routing: bytes | None = None, configure: Callable[[Any], None] | None = None) -> None:
        self.context = zmq.Context()
        self.turns, self.control = (self.context.socket(zmq.DEALER) for _ in range(2))
        for socket, at in ((self.turns, port), (self.control, port + 1)):
            socket.linger = 0
            socket.sndtimeo = int(TIMEOUT_S * 1000)  # libzmq gives a refused connection up: a send would wait forever
            if routing is not None:
                socket.routing_id = routing
            if configure is not None:
                configure(socket)
            socket.connect(f"tcp://127.0.0.1:{at}")

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Vanish."""
        self.context.destroy(linger=0)

    def send(
        self,
        type: str,
        fields: dict[str, Any] | None = None,
        *,
        session: str | None = None,
        turn: int | None = None,
        control: bool = False,
        buffers: tuple[bytes, ...] = (),
    ) -> str:
        """Send a request; returns its id."""
        message = Message(type, fields or {}, uuid.uuid4().hex, session=session, turn=turn, buffers=buffers)
        (self.control if control else self.turns).send_multipart(encode(message))
        assert message.id is not None
        return message.id

    def send_raw(self, frames: Sequence[bytes], *, control: bool = False) -> None:
        """Send whatever it is."""
        (self.control if control else self.turns).send_multipart(list(frames))

    def receive(self, *, control: bool = False) -> Message:
        """The next message; fails the test when none comes or it breaks the protocol."""
        socket = self.control if control else self.turns
        assert socket.poll(int(TIMEOUT_S * 1000)), "no answer"
        return decode(socket.recv_multipart(), SERVER_LIMITS)

    def silent(self, milliseconds: int) -> bool:
        """Whether nothing comes for so long."""
        return not self.turns.poll(milliseconds)

    def ask(self, type: str, fields: dict[str, Any] | None = None, *, answer: str = "", **header: Any) -> Message:
        """Send a request and return what answers it, which must be of the type `answer` if one is given."""
        id = self.send(type, fields, **header)
        for _ in until_timeout():
            message = self.receive(control=header.get("control", False))
            if message.parent == id:
                assert not answer or message.type == answer, message
                return message
        raise AssertionError("only other requests were answered")

    def open(self, **fields: Any) -> Game:
        """A new game, or with `token` an old one."""
        opened = self.ask("open", {"seed": 3, **fields}, answer="opened")
        assert opened.session is not None
        return Game(opened.session, opened.fields["token"], opened)

    def begin(self, game: Game, text: str = "Mia waves.", turn_id: str | None = None, **fields: Any) -> str:
        """Ask for a turn; returns the request's id."""
        turn = {"instruction": text, "turn_id": turn_id or uuid.uuid4().hex, "token": game.token, **fields}
        return self.send("turn", turn, session=game.session)

    def play(self, game: Game, text: str = "Mia waves.", turn_id: str | None = None, **fields: Any) -> list[Message]:
        """A whole turn: all its messages up to `done` or `error`."""
        return self.rest(self.begin(game, text, turn_id, **fields))

    def rest(self, id: str) -> list[Message]:
        """What answers a request, up to what ends it."""
        messages: list[Message] = []
        while not messages or messages[-1].type not in ("done", "error", "exported"):
            message = self.receive()
            if message.parent == id:
                messages.append(message)
        return messages

    def until(self, id: str, type: str) -> list[Message]:
        """What answers a request, up to the first message of a type."""
        messages: list[Message] = []
        while not messages or messages[-1].type != type:
            message = self.receive()
            assert message.type != "error", message
            if message.parent == id:
                messages.append(message)
        return messages


def error_code(messages: list[Message] | Message) -> str:
    """The code of the error that a request was answered with."""
    message = messages[-1] if isinstance(messages, list) else messages
    assert message.type == "error", message
    return str(message.fields["code"])


def frames(messages: Sequence[Message]) -> list[bytes]:
    """The pictures of a turn; fails unless its events are numbered without a gap and it is done."""
    events = [message for message in messages if message.seq is not None]
    numbered = [(message.type, message.seq) for message in events]
    assert [seq for _, seq in numbered] == list(range(len(events))), numbered
    assert events[-1].type == "done", events[-1]
    pictures = [bytes(message.buffers[0]) for message in events if message.type == "frame"]
    assert len(pictures) == 17
    return pictures
