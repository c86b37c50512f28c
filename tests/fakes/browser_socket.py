"""A browser without a page: one WebSocket to a gateway, with the protocol's checks on all that comes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgpack
from live_server import TIMEOUT_S, LiveServer, until_timeout
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from animegamer_rt.serving.wire.codec import SERVER_LIMITS, Message, decode

JSON, MSGPACK = "animegamer.v1.json", "animegamer.v1.msgpack"


class Browser:
    """One WebSocket in one of the two forms."""

    def __init__(self, url: str, form: str = JSON, **options: Any) -> None:
        address = url.replace("http://", "ws://") + "ws"
        self.form = form
        self.socket: ClientConnection = connect(address, subprotocols=[Subprotocol(form)], max_size=None, **options)
        self.socket.__enter__()
        self._count = 0

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, type: str, fields: dict[str, Any], **header: Any) -> str:
        """Send a request; returns its id."""
        self._count += 1
        whole = {"type": type, "id": f"b{self._count}", "fields": fields, **header}
        packed = msgpack.packb(whole)
        self.socket.send(json.dumps(whole) if self.form == JSON else len(packed).to_bytes(4, "big") + packed)
        return f"b{self._count}"

    def receive(self) -> Message:
        """The next message."""
        data = self.socket.recv(timeout=TIMEOUT_S)
        if isinstance(data, str):
            return decode([b"AGRT\x01", msgpack.packb(json.loads(data))], SERVER_LIMITS)
        length = 4 + int.from_bytes(data[:4], "big")
        header = msgpack.packb(json.loads(data[4:length])) if self.form == JSON else data[4:length]
        return decode([b"AGRT\x01", header, *([data[length:]] if data[length:] else [])], SERVER_LIMITS)

    def ask(self, type: str, fields: dict[str, Any] | None = None, **header: Any) -> Message:
        """A request and the first message that answers it."""
        id = self.send(type, fields or {}, **header)
        while (message := self.receive()).parent != id:
            pass
        return message

    def hello(self, **fields: Any) -> Message:
        """Say hello."""
        return self.ask("hello", {"versions": [1], "client": "test", "minor": 1, **fields})

    def begin(self, opened: Message, turn_id: str, type: str = "turn", **header: Any) -> str:
        """Ask for a turn or, with `type` replay, for one that was played."""
        turn = {"instruction": "Mia waves.", "turn_id": turn_id} if type == "turn" else {}
        return self.send(type, {**turn, "token": opened.fields["token"]}, session=opened.session, **header)

    def rest(self, id: str) -> list[Message]:
        """What answers a request until it ends."""
        messages: list[Message] = []
        while not messages or messages[-1].type not in ("done", "error"):
            message = self.receive()
            if message.parent == id:
                messages.append(message)
        return messages


def web(server: LiveServer) -> str:
    """The page's address, from the first line that the server prints."""
    for _ in until_timeout():
        for line in server.said:
            if line.startswith("{"):
                return str(json.loads(line)["web"])
    raise AssertionError("no address was printed")


def gateway_pid(server: LiveServer) -> int:
    """The process id of the gateway that was started last."""
    for _ in until_timeout():
        started = [line for line in server.said if "gateway started, process " in line]
        if started:
            return int(started[-1].rsplit(" ", 1)[1])
    raise AssertionError("no gateway was started")


def resident_mib(pid: int) -> float:
    """Physical memory of a process."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024
