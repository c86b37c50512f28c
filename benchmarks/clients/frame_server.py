"""A server that sends full-size frames and knows when the last byte of each left it.

Speaks ZMTP on plain sockets, so that the last byte of a picture can be held back until the rest has arrived: the time
from then to the client's callback is the client's own. A process of its own: it prints its address, and a JSON list of
times (nanoseconds of the monotonic clock) for each line on its standard input.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import sys
import threading
import time
from typing import Any

from client.conformance.fake_turns import BUNDLE, STRENGTHS, TEXT_CHARACTERS, VALUES
from client.conformance.other_programs import GREETING, READY

from animegamer_client.codec import Message, decode, encode

WIDTH, HEIGHT, FRAMES = 480, 720, 17
HELD_BACK_S = 0.005
"""How long the last byte is held back: enough for the bytes before it to be taken out of the socket."""
MORE, LONG, COMMAND = 1, 2, 4


class FrameServer:
    """Two adjacent ports. times_ns: when the last byte of each picture was sent."""

    def __init__(self) -> None:
        self.times_ns: list[int] = []
        self._picture = bytes(4 * WIDTH * HEIGHT)
        self._sessions = itertools.count(1)
        self._listeners: list[socket.socket] = []
        while len(self._listeners) < 2:
            first = socket.create_server(("127.0.0.1", 0))
            with contextlib.suppress(OSError):
                self._listeners = [first, socket.create_server(("127.0.0.1", first.getsockname()[1] + 1))]
        self.address = f"tcp://127.0.0.1:{self._listeners[0].getsockname()[1]}"
        for listener in self._listeners:
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            taken, _ = listener.accept()
            taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(taken,), daemon=True).start()

    def _serve(self, taken: socket.socket) -> None:
        with taken, taken.makefile("rb") as incoming, contextlib.suppress(OSError, EOFError):
            taken.sendall(GREETING + READY)
            _read(incoming, len(GREETING))
            turns, frames = itertools.count(1), []
            while True:
                flags = _read(incoming, 1)[0]
                data = _read(incoming, int.from_bytes(_read(incoming, 8 if flags & LONG else 1), "big"))
                if flags & COMMAND:
                    continue
                frames.append(data)
                if not flags & MORE:
                    self._answer(taken, decode(frames), turns)
                    frames = []

    def _answer(self, taken: socket.socket, request: Message, turns: itertools.count[int]) -> None:
        def say(kind: str, fields: dict[str, Any], **header: Any) -> None:
            taken.sendall(_framed(Message(kind, fields, parent=request.id, **header)))

        if request.type == "hello":
            limits = {"text_characters": TEXT_CHARACTERS, "header_bytes": 65536, "turns_a_minute": 0}
            bundle = {**BUNDLE, "width": WIDTH, "height": HEIGHT, "frames": FRAMES}
            about = {"version": 1, "server": "frames", "protocol": "1.0", "bundle": bundle, "capabilities": []}
            say("welcome", {**about, "limits": {**limits, "sessions": 8, "queue": 8}, "state": "ready"})
        elif request.type == "open":
            session = f"s{next(self._sessions)}"
            about = {"token": session, "seed": 3, "history_turns": 2, "turns": 0, "character": VALUES}
            say("opened", about, session=session)
        elif request.type == "turn":
            self._play(taken, request, next(turns))
        else:
            say("pong", {})

    def _play(self, taken: socket.socket, request: Message, turn: int) -> None:
        events = itertools.count()

        def event(kind: str, fields: dict[str, Any], buffers: tuple[bytes, ...] = ()) -> bytes:
            place = {"parent": request.id, "session": request.session, "turn": turn, "seq": next(events)}
            return _framed(Message(kind, fields, buffers=buffers, **place))  # type: ignore[arg-type]

        request_fields = {"turn_id": request.fields["turn_id"], "instruction": request.fields["instruction"]}
        taken.sendall(event("accepted", {**request_fields, "place": 0, "estimate_s": 0.0, "replayed": False}))
        state = {**STRENGTHS, "character": VALUES, "shown": VALUES, "motion_scope": 2.0}
        taken.sendall(event("state", state))
        layout = {"dtype": "uint8", "width": WIDTH, "height": HEIGHT, "stride": 4 * WIDTH, "count": FRAMES}
        for index in range(FRAMES):
            fields = {**layout, "pixel_format": "rgba32", "codec": "raw", "index": index}
            data = memoryview(event("frame", fields, (self._picture,)))
            taken.sendall(data[:-1])
            time.sleep(HELD_BACK_S)
            self.times_ns.append(time.monotonic_ns())
            taken.sendall(data[-1:])
        seconds = dict.fromkeys(("queue", "predictor", "denoiser", "vae", "total"), 0.0)
        taken.sendall(event("done", {"seconds": seconds, "turns": turn}))


def _read(incoming: Any, count: int) -> bytes:
    data: bytes = incoming.read(count)
    if len(data) < count:
        raise EOFError
    return data


def _framed(message: Message) -> bytes:
    parts = [bytes(part) for part in encode(message)]
    framed = []
    for index, part in enumerate(parts):
        flags = (MORE if index + 1 < len(parts) else 0) | (LONG if len(part) > 255 else 0)
        framed += [bytes([flags]), len(part).to_bytes(8 if flags & LONG else 1, "big"), part]
    return b"".join(framed)


def main() -> None:
    """Serve until the standard input ends."""
    server = FrameServer()
    print(server.address, flush=True)
    for _ in sys.stdin:
        print(json.dumps(server.times_ns), flush=True)


if __name__ == "__main__":
    main()
