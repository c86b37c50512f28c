"""Days of an attract loop in less time, and what they leave behind: `python -m benchmarks.kiosk --minutes 40`.

The page's clock runs faster (`--faster`), and the watch looks as often as it would in that time, or as often as this
machine can. Once an hour of the page's time a visitor plays a turn and goes. The server plays pocket. The record
says how long it really ran, how many pictures were drawn, how often the watch looked. Needs `web` and Chromium.
Writes a record of kind `kiosk` and prints it. Linux only.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
from websockets.sync.client import ClientConnection, connect

from animegamer_rt.kiosk.browser import Browser
from animegamer_rt.kiosk.config import KioskConfig
from animegamer_rt.kiosk.machine import Machine
from animegamer_rt.kiosk.watcher import LOOK_S, Watcher
from animegamer_rt.profiling.host import environment, write_record

DEVTOOLS, SERVER, PAGE = 19222, 15570, 18080
SAMPLES = 80
HOUR_S, DAY_S = 3600.0, 86_400.0
SENTENCE = "Tofi waves gently in the meadow."
GOALS_MIB_A_DAY = {"page heap": 2, "browser": 60, "gateway": 5, "server": 5, "worker": 10, "watch": 5}
"""Growth from the second quarter of the run to the last, as if for a day."""
FASTER = """(() => {
  const k = %g, now = performance.now.bind(performance), date = Date.now.bind(Date), zero = date();
  performance.now = () => now() * k;
  Date.now = () => zero + (date() - zero) * k;
  for (const name of ["setTimeout", "setInterval"]) {
    const real = window[name].bind(window);
    window[name] = (f, ms = 0, ...rest) => real(f, ms / k, ...rest);
  }
  const frame = requestAnimationFrame.bind(window);
  window.requestAnimationFrame = (f) => frame((at) => f(at * k));
  const draw = CanvasRenderingContext2D.prototype.drawImage;
  window.drawn = 0;
  CanvasRenderingContext2D.prototype.drawImage = function (...all) { window.drawn++; return draw.apply(this, all); };
})()"""


class DevTools:
    """One connection that stays, so that the page's clock is fast after each load, too."""

    def __init__(self, faster: float) -> None:
        with urlopen(f"http://127.0.0.1:{DEVTOOLS}/json", timeout=10) as answer:
            page = next(one for one in json.load(answer) if one["type"] == "page")
        self._socket: ClientConnection = connect(page["webSocketDebuggerUrl"], max_size=None, proxy=None)
        self._count = 0
        self.ask("Page.enable")
        self.ask("Page.addScriptToEvaluateOnNewDocument", source=FASTER % faster)
        self.ask("Performance.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its result."""
        self._count += 1
        self._socket.send(json.dumps({"id": self._count, "method": method, "params": parameters}))
        while (message := json.loads(self._socket.recv(timeout=60))).get("id") != self._count:
            pass
        result: dict[str, Any] = message.get("result", {})
        return result

    def page(self) -> dict[str, float]:
        """What the page holds after its garbage is collected, and the pictures drawn since it was loaded."""
        self.ask("HeapProfiler.collectGarbage")
        metrics = {one["name"]: one["value"] for one in self.ask("Performance.getMetrics")["metrics"]}
        drawn = self.ask("Runtime.evaluate", expression="window.drawn")["result"].get("value", 0)
        return {
            "page heap": metrics["JSHeapUsedSize"] / 2**20,
            "nodes": metrics["Nodes"],
            "listeners": metrics["JSEventListeners"],
            "drawn": drawn,
        }


def watch(config: KioskConfig, faster: float, pipe: Connection) -> None:
    """The kit's watch, its looks and its clock faster; sends its counts when it is asked, until the pipe closes."""
    restarts: list[str] = []

    def run(command: Sequence[str]) -> str:
        restarts.extend([" ".join(command)] if "restart" in command else [])
        return "0\n"

    browser = Browser(config.devtools_port, config.page_url, config.waiting_url)
    watcher = Watcher(config, browser, Machine(run))
    begin, looks, said, hour = time.monotonic(), 0, 0, 0
    while True:
        page_s = (time.monotonic() - begin) * faster
        watcher.round(page_s, datetime.now())
        looks += 1
        if page_s // HOUR_S > hour:
            hour = int(page_s // HOUR_S)
            said += browser.say(SENTENCE)
        if pipe.poll(max(0.0, begin + looks * LOOK_S / faster - time.monotonic())):
            try:
                pipe.recv()
                pipe.send(
                    {"looks": looks, "visitors": said, "emptied": watcher.report.resets, "restarts": len(restarts)}
                )
            except (EOFError, OSError):
                return


def tree_mib(process: psutil.Process) -> float:
    """Memory of a process and its children, shared pages counted once."""
    found = 0
    for one in (process, *process.children(recursive=True)):
        try:
            found += one.memory_full_info().pss
        except psutil.Error:
            continue
    return found / 2**20


def growth(samples: Sequence[Mapping[str, float]], name: str, days: float) -> float:
    """From the mean of the second quarter to that of the last, for each day between their middles."""
    quarter = len(samples) // 4
    means = [
        sum(one[name] for one in part) / len(part) for part in (samples[quarter : 2 * quarter], samples[-quarter:])
    ]
    return (means[1] - means[0]) / (days * 0.5)


def play(folder: Path, minutes: float, faster: float) -> dict[str, Any]:
    """Run the kiosk's parts for so long; returns the figures."""
    state, log = folder / "state", folder / "server.log"
    serve = [sys.executable, "-m", "animegamer_rt", "serve", "--port", str(SERVER), "--metrics-port", "0"]
    serve += ["--web", f"127.0.0.1:{PAGE}", "--state-dir", str(state), "--keep-days", "1", "--ahead", "3"]
    chromium = next(path for name in ("chromium", "google-chrome") if (path := shutil.which(name)))
    browse = [
        chromium,
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        f"--user-data-dir={folder}/profile",
    ]
    browse += [f"--remote-debugging-port={DEVTOOLS}", "--window-size=1080,1920", "--no-first-run", "about:blank"]
    # What is frozen is told by real time: the server draws no faster.
    config = KioskConfig(page_port=PAGE, devtools_port=DEVTOOLS, frozen_seconds=round(20 * faster))
    mine, theirs = multiprocessing.Pipe()
    with open(log, "wb") as lines:
        server = psutil.Popen(serve, stdout=lines, stderr=lines)
        browser = psutil.Popen(browse, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        watcher = multiprocessing.get_context("spawn").Process(target=watch, args=(config, faster, theirs), daemon=True)
        try:
            _wait(f"http://127.0.0.1:{PAGE}/readyz")
            _wait(f"http://127.0.0.1:{DEVTOOLS}/json")
            page = DevTools(faster)
            page.ask("Page.navigate", url=config.page_url)
            watcher.start()
            samples: list[dict[str, float]] = []
            drawn, begin = 0.0, time.monotonic()
            for number in range(1, SAMPLES + 1):
                time.sleep(max(0.0, begin + number * minutes * 60 / SAMPLES - time.monotonic()))
                sample = page.page() | _memory(server, browser, psutil.Process(watcher.pid))
                drawn += max(0.0, sample["drawn"] - (samples[-1]["drawn"] if samples else 0.0))
                samples.append(sample | {"log bytes": log.stat().st_size})
            seconds = time.monotonic() - begin
            mine.send("counts")
            counts: dict[str, Any] = mine.recv()
        finally:
            if watcher.pid:
                watcher.kill()
            for process in (browser, server):
                process.terminate()
                process.wait(60)
    days = seconds * faster / DAY_S
    return {
        "real_s": round(seconds, 1),
        "page_s": round(seconds * faster),
        "faster": faster,
        "looks": counts["looks"],
        "looks_in_that_time": round(seconds * faster / LOOK_S),
        "pictures_drawn": int(drawn),
        **{name: counts[name] for name in ("visitors", "emptied", "restarts")},
        "first_and_last": {name: [round(one[name], 1) for one in (samples[0], samples[-1])] for name in samples[0]},
        "growth_mib_a_day": {name: round(growth(samples, name, days), 2) for name in GOALS_MIB_A_DAY},
        "log_bytes_a_day": round(growth(samples, "log bytes", days)),
        "goals_mib_a_day": GOALS_MIB_A_DAY,
        "samples": len(samples),
    }


def _memory(server: psutil.Process, browser: psutil.Process, watcher: psutil.Process) -> dict[str, float]:
    parts = {"gateway": "serving.gateway", "worker": "serving.worker"}
    found = {"server": server.memory_full_info().pss / 2**20, "watch": tree_mib(watcher), "browser": tree_mib(browser)}
    for child in server.children():
        line = " ".join(child.cmdline())
        found |= {name: child.memory_full_info().pss / 2**20 for name, word in parts.items() if word in line}
    return found


def _wait(url: str) -> None:
    end = time.monotonic() + 180
    while True:
        try:
            with urlopen(url, timeout=5):
                return
        except OSError:
            if time.monotonic() > end:
                raise SystemExit(f"error: {url} does not answer") from None
            time.sleep(0.5)


def main() -> int:
    """Run, print, write the record; 1 where a part grows or the watch restarted something."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=40)
    parser.add_argument("--faster", type=float, default=36, help="how much faster the page's clock runs")
    parser.add_argument("--results", type=Path, default=Path("bench-results"))
    options = parser.parse_args()
    record = {**environment("websockets", "starlette", "uvicorn"), "kind": "kiosk", "size": "pocket"}
    record["load_average"] = [round(load, 1) for load in os.getloadavg()]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        record |= play(Path(folder), options.minutes, options.faster)
    grown = {name: mib for name, mib in record["growth_mib_a_day"].items() if mib > GOALS_MIB_A_DAY[name]}
    options.results.mkdir(parents=True, exist_ok=True)
    path = write_record(options.results, "pocket-kiosk", record)
    print(json.dumps(record, indent=1))
    print(path)
    if grown or record["restarts"]:
        print(f"error: grown: {grown}; restarts: {record['restarts']}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
