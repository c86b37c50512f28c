"""The page without a server: `make demo` plays games on a server and writes them beside the page into build/demo.

The folder is static and can be put on any web server: `python -m http.server -d build/demo`. What a visitor sees are
turns that a model drew, with their own times; only the sentences that were recorded can be said.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
from PIL import Image
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

CLIENT = Path(__file__).resolve().parents[1]
STORY = (
    (
        "Tofi waves gently in the meadow.",
        "Zelki flies wildly in the cloudland at night.",
        "Bixo runs quickly through the city.",
        "Mirel in a raincoat jumps in the snowfield.",
    ),
    ("It is getting dark.", "Dovan comes too, and they dance.", "Then off to the beach."),
    ("Jump wildly!", "Lie down and sleep."),
)
"""Sentences of the first, second and third turn; each of a turn's is played after each of the turn before."""
QUALITY, TIMEOUT_S = 86, 300.0
WORDS = ("people", "motions", "places", "hours", "clothes", "manners")


class Recorder:
    """One WebSocket to a gateway; records what comes for a turn."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._count = socket, 0
        hello = {"versions": [1], "minor": 1, "client": "record", "codec": "raw", "pixel_format": "rgb24"}
        self.welcome = self.ask("hello", hello)["fields"]

    def ask(self, type: str, fields: dict[str, Any], **header: Any) -> dict[str, Any]:
        """A request and its one answer."""
        self._send(type, fields, header)
        return self._receive()[0]

    def play(self, game: dict[str, Any], instruction: str) -> tuple[list[tuple[float, dict[str, Any]]], Image.Image]:
        """The events of a turn, with their seconds after the request, and its frames below one another."""
        fields = {"instruction": instruction, "turn_id": str(self._count), "token": game["fields"]["token"]}
        start = time.monotonic()
        self._send("turn", fields, {"session": game["session"]})
        events: list[tuple[float, dict[str, Any]]] = []
        frames: list[np.ndarray[Any, Any]] = []
        while not events or events[-1][1]["type"] != "done":
            header, buffer = self._receive()
            if buffer:
                size = header["fields"]["height"], header["fields"]["width"], 3
                frames.append(np.frombuffer(buffer, np.uint8).reshape(size))
            kept = {key: header[key] for key in ("type", "seq", "fields") if key in header}
            events.append((round(time.monotonic() - start, 3), kept))
        return events, Image.fromarray(np.concatenate(frames))

    def _send(self, type: str, fields: dict[str, Any], header: dict[str, Any]) -> None:
        self._count += 1
        self._socket.send(json.dumps({"type": type, "id": str(self._count), "fields": fields, **header}))

    def _receive(self) -> tuple[dict[str, Any], bytes]:
        data = self._socket.recv(timeout=TIMEOUT_S)
        text, buffer = (data, b"")
        if isinstance(data, bytes):
            end = 4 + int.from_bytes(data[:4], "big")
            text, buffer = data[4:end].decode(), data[end:]
        header: dict[str, Any] = json.loads(text)
        if header["type"] == "error":
            sys.exit(f"error: the server refused: {header['fields']['text']}")
        return header, buffer


def record(recorder: Recorder, out: Path) -> None:
    """Play every path through the story and write recorded.json and a picture for each turn."""
    turns: list[dict[str, Any]] = []

    def grow(game: dict[str, Any], after: int | None, depth: int) -> None:
        for sentence in STORY[depth]:
            share = {"token": game["fields"]["token"], "turn": depth}
            branch = recorder.ask("branch", share, session=game["session"])
            events, strip = recorder.play(branch, sentence)
            number = len(turns)
            turns.append({"after": after, "instruction": sentence, "events": _of_raw(events)})
            strip.save(out / f"turn-{number}.jpg", quality=QUALITY, subsampling=0, optimize=True)
            print(f"turn {number}: {sentence}", flush=True)
            if depth + 1 < len(STORY):
                grow(branch, number, depth + 1)
            recorder.ask("close", {"token": branch["fields"]["token"]}, session=branch["session"])

    grow(recorder.ask("open", {"seed": 7}), None, 0)
    bundle = {key: value for key, value in recorder.welcome["bundle"].items() if key not in WORDS}
    welcome = {**recorder.welcome, "bundle": bundle, "state": "ready"}
    (out / "recorded.json").write_text(json.dumps({"welcome": welcome, "turns": turns}, separators=(",", ":")))


def _of_raw(events: list[tuple[float, dict[str, Any]]]) -> list[tuple[float, dict[str, Any]]]:
    """The events as the page gets them: pictures of four bytes a pixel, as a canvas has them."""
    for _, event in events:
        if event["type"] == "frame":
            event["fields"] |= {"pixel_format": "rgba32", "stride": 4 * event["fields"]["width"]}
    return events


def await_ready(url: str) -> None:
    """Wait until the server behind a gateway takes turns."""
    for _ in range(round(TIMEOUT_S)):
        with contextlib.suppress(OSError), urlopen(url + "readyz"):
            return
        time.sleep(1)
    sys.exit("error: the server is not ready")


def main() -> int:
    """Start a server, record, and lay the page beside it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/demo"), help="folder to write; is replaced")
    arguments, options = parser.parse_known_args()
    shutil.rmtree(arguments.out, ignore_errors=True)
    shutil.copytree(CLIENT / "web", arguments.out, ignore=shutil.ignore_patterns("login.html"))
    shutil.copy(CLIENT / "demo" / "connection.js", arguments.out)
    with tempfile.TemporaryDirectory() as state:
        command = [sys.executable, "-m", "animegamer_rt", "serve", "--port", "0", "--web", "0"]
        settings = Path(state) / "serve.toml"
        settings.write_text("sessions = 0\nturns_per_minute = 0\n", encoding="utf-8")
        command += ["--state-dir", state, "--config", str(settings), *options]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            ready = json.loads(server.stdout.readline() or sys.exit("error: the server did not start"))
            address = ready["web"].replace("http", "ws", 1) + "ws"
            await_ready(ready["web"])
            with connect(address, subprotocols=[Subprotocol("animegamer.v1.json")], max_size=None) as socket:
                record(Recorder(socket), arguments.out)
        finally:
            server.terminate()
            server.wait()
    size = sum(path.stat().st_size for path in arguments.out.iterdir())
    print(f"{arguments.out}: {size / 1e6:.1f} MB; look at it with: {sys.executable} -m http.server -d {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
