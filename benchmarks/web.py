"""What the gateway and the page add to a turn, with many browsers, on a cold load: `python -m benchmarks.web`.

Simulated engines, so that only the way of the messages is timed. Needs the extra `web` and, for the page's
figures, Chromium. Writes a record of kind `web` and prints it.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import zmq
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from animegamer_rt.profiling.host import environment, write_record
from animegamer_rt.profiling.percentiles import percentile
from animegamer_rt.serving.bench.player import Player

GOALS = {"gateway_and_page_s": 0.030, "ready_p95_s": 0.050, "crowd_p95_s": 0.100, "gateway_mib": 150, "usable_s": 1.0}
CROWD, CROWD_TURNS, PAUSE_S = 50, 4, (4.0, 12.0)
"""Browsers that play at once, each with a pause between its turns, so that the queue is not what is measured."""
READ_S = 1.0
AHEAD = 3
"""Turns that are played ahead, as in the kiosk."""
MEMORY = "animegamer_gateway_process_resident_memory_bytes "
CLICK_TO_PICTURE = """new Promise((then) => {
  const start = performance.now(), chart = document.querySelector('#chart');
  const seen = new MutationObserver(() => {
    if (!chart.querySelector('.here')) return;
    seen.disconnect();
    requestAnimationFrame(() => then((performance.now() - start) / 1000));
  });
  document.querySelectorAll('#chart .here').forEach((one) => one.classList.remove('here'));
  seen.observe(chart, { subtree: true, attributeFilter: ['class'] });
  document.querySelector('%s').click();
})"""
"""A tick of the chart is set once its picture can be drawn; the next frame of the screen draws it."""
READY = "#ready button[aria-disabled=false]"
USABLE = "document.querySelector('#chips button') && !document.querySelector('#deal').disabled"


class Serve:
    """`animegamer-rt serve --web`."""

    def __init__(self, device: str, state: Path, *options: str) -> None:
        command = [sys.executable, "-m", "animegamer_rt", "serve", "--port", "0", "--web", "0", "--metrics-port", "0"]
        command += ["--device", device, "--state-dir", str(state), "--turns-per-minute", "0"]
        command += ["--sessions", "0", "--queue", "200", "--connections", "200", *options]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def __enter__(self) -> Serve:
        assert self._process.stdout is not None
        self.url = str(json.loads(self._process.stdout.readline())["web"])
        self.port = int(self._process.stdout.readline().split()[1].rpartition(":")[2])
        for _ in range(200):
            try:
                with urlopen(self.url + "readyz"):
                    return self
            except URLError:
                time.sleep(0.1)
        raise SystemExit("error: the server is not ready")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(60)

    def gateway_mib(self) -> float:
        """Physical memory of the gateway."""
        with urlopen(self.url + "metrics") as answer:
            lines = answer.read().decode().splitlines()
        return next(float(line.removeprefix(MEMORY)) for line in lines if line.startswith(MEMORY)) / 2**20


class Browser:
    """One WebSocket that plays turns."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def ask(self, type: str, fields: dict[str, Any], **header: Any) -> dict[str, Any]:
        """A request and its one answer."""
        await self._socket.send(json.dumps({"type": type, "id": "1", "fields": fields, **header}))
        return self._header(await self._socket.recv())

    async def open(self) -> None:
        """Say hello and open a game."""
        await self.ask("hello", {"versions": [1], "minor": 1, "client": "benchmark", "codec": "raw"})
        self._game = await self.ask("open", {"seed": 7})

    async def play(self) -> tuple[float, float, dict[str, float]]:
        """A turn: seconds to the first picture, to the end, and the server's own count."""
        start, first = time.perf_counter(), 0.0
        fields = {"instruction": "One waits.", "turn_id": uuid.uuid4().hex, "token": self._game["fields"]["token"]}
        header = await self.ask("turn", fields, session=self._game["session"])
        while header["type"] != "done":
            assert header["type"] != "error", header
            header = self._header(await self._socket.recv())
            if header["type"] == "frame":
                first = first or time.perf_counter() - start
        return first, time.perf_counter() - start, header["fields"]["seconds"]

    @staticmethod
    def _header(data: str | bytes) -> dict[str, Any]:
        text = data if isinstance(data, str) else data[4 : 4 + int.from_bytes(data[:4], "big")]
        found: dict[str, Any] = json.loads(text)
        return found


def figures(values: list[float]) -> dict[str, float]:
    """p50, p95 and n."""
    return {"p50": round(percentile(values, 50), 4), "p95": round(percentile(values, 95), 4), "n": len(values)}


async def with_browsers(url: str, count: int, turns: int) -> list[tuple[float, float, dict[str, float]]]:
    """So many browsers at once, each with pauses before its turns if there are several."""
    dice, address = random.Random(0), url.replace("http", "ws", 1) + "ws"

    async def one() -> list[tuple[float, float, dict[str, float]]]:
        async with connect(address, subprotocols=[Subprotocol("animegamer.v1.json")], max_size=None) as socket:
            browser, played = Browser(socket), []
            await browser.open()
            for _ in range(turns):
                await asyncio.sleep(dice.uniform(*PAUSE_S) if count > 1 else 0)
                played.append(await browser.play())
            return played

    return [turn for turns in await asyncio.gather(*(one() for _ in range(count))) for turn in turns]


def overhead(serve: Serve, rounds: int) -> dict[str, Any]:
    """The first picture of a native client and of a browser without a page, a turn of each in alternation."""
    native: list[float] = []
    gateway: list[float] = []
    with zmq.Context() as context, Player(context, serve.port) as player:
        player.open()
        for _ in range(rounds):
            native.append(player.play().first_frame_s)
            gateway += [first for first, _, _ in asyncio.run(with_browsers(serve.url, 1, 1))]
    added = round(figures(gateway)["p50"] - figures(native)["p50"], 4)
    return {"native_first_picture_s": figures(native), "gateway_first_picture_s": figures(gateway), "gateway_s": added}


def page(serve: Serve, rounds: int) -> dict[str, Any]:
    """The same in Chromium, to the frame of the screen after the first picture, beside a native client; cold loads."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "browser"))
    usable: list[float] = []
    first: list[float] = []
    native: list[float] = []
    with (
        importlib.import_module("chromium").Chromium() as chromium,
        zmq.Context() as context,
        Player(context, serve.port) as player,
    ):
        player.open()
        chromium.call("Network.setCacheDisabled", cacheDisabled=True)
        chromium.size(1440, 900)
        for _ in range(max(5, rounds // 3)):
            chromium.call("Page.navigate", url=serve.url)
            usable.append(float(chromium.until(f"{USABLE} ? performance.now() / 1000 : 0")))
        for _ in range(rounds):
            native.append(player.play().first_frame_s)
            chromium.until(USABLE)
            chromium.evaluate("document.querySelector('#deal').click()")
            first.append(float(chromium.evaluate(CLICK_TO_PICTURE % "#draw")))
    added = round(figures(first)["p50"] - figures(native)["p50"], 4)
    return {"page_first_picture_s": figures(first), "gateway_and_page_s": added, "usable_s": figures(usable)}


def ready(serve: Serve, rounds: int) -> dict[str, Any]:
    """From the click on a sentence that is ready, once all are, to the frame of the screen after the first picture.

    Of a visitor who has read for READ_S, and, in turn, of one who clicks while the last sentence still slides in.
    """
    first: list[float] = []
    at_once: list[float] = []
    with importlib.import_module("chromium").Chromium() as chromium:
        chromium.size(1440, 900)
        chromium.open(serve.url)
        for number in range(2 * rounds):
            chromium.until(f"document.querySelectorAll('{READY}').length === {AHEAD}")
            time.sleep(0 if number % 2 else READ_S)
            (at_once if number % 2 else first).append(float(chromium.evaluate(CLICK_TO_PICTURE % READY)))
            chromium.until(USABLE)
    return {"ready_first_picture_s": figures(first), "ready_at_once_first_picture_s": figures(at_once)}


def crowd(serve: Serve) -> dict[str, Any]:
    """Seconds of a turn at a browser beyond those of the server's queue and turn, with 50 of them."""
    played = asyncio.run(with_browsers(serve.url, CROWD, CROWD_TURNS))
    beyond = [whole - seconds["queue"] - seconds["total"] for _, whole, seconds in played]
    return {"browsers": CROWD, "beyond_s": figures(beyond), "gateway_mib": round(serve.gateway_mib(), 1)}


def main() -> int:
    """Measure, print, write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=25, help="samples of each figure")
    parser.add_argument("--results", type=Path, default=Path("bench-results"))
    options = parser.parse_args()
    record = {**environment("starlette", "uvicorn", "websockets", "pyzmq"), "kind": "web", "size": "pocket"}
    record |= {
        "load_average": [round(load, 1) for load in os.getloadavg()],
        "goals": GOALS,
        "turn_s": {"alone": 0.2, "crowd": 0.05},
    }
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        with Serve("simulated:0.2", Path(folder) / "alone") as serve:
            print("  one browser ...", flush=True)
            record |= overhead(serve, options.turns) | page(serve, options.turns)
        with Serve("cpu", Path(folder) / "ahead", "--ahead", str(AHEAD)) as serve:
            print("  turns ahead, pocket ...", flush=True)
            record |= ready(serve, options.turns)
        with Serve("simulated:0.05", Path(folder) / "crowd") as serve:
            print(f"  {CROWD} browsers ...", flush=True)
            record["crowd"] = crowd(serve)
    options.results.mkdir(parents=True, exist_ok=True)
    print(f"record: {write_record(options.results, 'pocket-web', record)}")
    print(json.dumps(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
