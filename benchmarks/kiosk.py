"""A day of attract loop in minutes, and what it leaves behind: `python -m benchmarks.kiosk`.

The page's clock runs faster (`--faster`), so 24 hours of its timers, pings and visitors take ten minutes. Once an hour
of that time a visitor plays a turn and goes, and the watch must empty the page: once for each visitor. The browser
draws pictures, and the watch looks, as often as this machine can, which is less often than in a day; the record says
what share of a day's there were, and growth is counted for a whole day's. The server plays pocket. It and its worker
keep the real clock, by which a day's visitors come within minutes, so their memory is written down and not judged:
test_gateway_day and the soak do that. Needs `web` and Chromium. Writes a record of kind `kiosk` and prints it. Linux
only.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import shutil
import statistics
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
SAMPLES = 120
WARM_UP = 0.5
"""Share of the samples that do not count: caches fill."""
HOUR_S, DAY_S = 3600.0, 86_400.0
CLIP_FPS = 8
A_DAY = {"page_s": DAY_S, "pictures": DAY_S * CLIP_FPS, "looks": DAY_S / LOOK_S}
SENTENCE = "Tofi waves gently in the meadow."
PARTS = {
    "page heap": ("pictures", 2.0),
    "browser": ("pictures", 60.0),
    "gateway": ("page_s", 5.0),
    "watch": ("looks", 5.0),
}
"""Part -> what its growth is counted against, and the most that it may grow in a day of that, in MiB."""
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
        self._socket.__enter__()
        self._count = 0
        self.ask("Page.enable")
        self.ask("Page.addScriptToEvaluateOnNewDocument", source=FASTER % faster)
        self.ask("Performance.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its result; empty where the page is just being replaced by another."""
        self._count += 1
        self._socket.send(json.dumps({"id": self._count, "method": method, "params": parameters}))
        while (message := json.loads(self._socket.recv(timeout=60))).get("id") != self._count:
            pass
        result: dict[str, Any] = message.get("result", {})
        return result

    def page(self) -> dict[str, float]:
        """What the page holds after its garbage is collected, and the pictures drawn since it was loaded."""
        while True:
            self.ask("HeapProfiler.collectGarbage")
            metrics = {one["name"]: one["value"] for one in self.ask("Performance.getMetrics").get("metrics", ())}
            drawn = self.ask("Runtime.evaluate", expression="window.drawn").get("result", {}).get("value")
            if metrics and drawn is not None:
                return {
                    "page heap": metrics["JSHeapUsedSize"] / 2**20,
                    "nodes": metrics["Nodes"],
                    "listeners": metrics["JSEventListeners"],
                    "drawn": drawn,
                }
            time.sleep(0.2)


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
                counts = {"looks": looks, "visitors": said, "emptied": watcher.report.resets}
                pipe.send(counts | {"restarts": len(restarts)})
            except (EOFError, OSError):
                return


def tree_mib(process: psutil.Process) -> float:
    """Memory of a process and its children (PSS), pages that they share counted once."""
    found = 0
    for one in (process, *process.children(recursive=True)):
        try:
            found += one.memory_full_info().pss
        except psutil.Error:
            continue
    return found / 2**20


def growth_a_day(samples: Sequence[Mapping[str, float]], part: str) -> dict[str, Any]:
    """The slope of a part's memory against what drives it, for a day of that, and two standard errors beside it.

    verdict: `none` where slope and errors together stay within the goal; `grows` where the run itself has grown by more
    than a day may; else `not shown`: then a longer run, or a machine with less to do, tells.
    """
    driver, goal_mib = PARTS[part]
    kept = samples[round(WARM_UP * len(samples)) :]
    at, mib = [one[driver] for one in kept], [one[part] for one in kept]
    line = statistics.linear_regression(at, mib)
    left = [y - line.slope * x - line.intercept for x, y in zip(at, mib, strict=True)]
    spread = sum((x - statistics.fmean(at)) ** 2 for x in at)
    error = math.sqrt(sum(one * one for one in left) / (len(kept) - 2) / spread)
    day, either_side = line.slope * A_DAY[driver], 2 * error * A_DAY[driver]
    grown = line.slope * (at[-1] - at[0]) > goal_mib
    verdict = "none" if day + either_side <= goal_mib else "grows" if grown else "not shown"
    return {
        "mib_a_day": round(day, 2),
        "either_side_mib": round(either_side, 2),
        "goal_mib": goal_mib,
        "by": driver,
        "verdict": verdict,
    }


def play(folder: Path, minutes: float, faster: float) -> dict[str, Any]:
    """Run the kiosk's parts for so long; returns the figures."""
    state, log = folder / "state", folder / "server.log"
    serve = [sys.executable, "-m", "animegamer_rt", "serve", "--port", str(SERVER), "--metrics-port", "0"]
    serve += ["--web", f"127.0.0.1:{PAGE}", "--state-dir", str(state), "--keep-days", "1", "--ahead", "3"]
    chromium = next(path for name in ("chromium", "google-chrome") if (path := shutil.which(name)))
    browse = [chromium, "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run"]
    browse += ["--disable-frame-rate-limit", "--disable-gpu-vsync", "--window-size=1080,1920"]  # as many as it can draw
    browse += [f"--user-data-dir={folder}/profile", f"--remote-debugging-port={DEVTOOLS}", "about:blank"]
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
            pictures, drawn, begin = 0.0, 0.0, time.monotonic()
            for number in range(1, SAMPLES + 1):
                time.sleep(max(0.0, begin + number * minutes * 60 / SAMPLES - time.monotonic()))
                sample = page.page() | _memory(server, browser, psutil.Process(watcher.pid))
                mine.send("counts")
                counts: dict[str, int] = mine.recv()
                # A page that was loaded anew counts from zero.
                pictures += sample["drawn"] - drawn if sample["drawn"] >= drawn else sample["drawn"]
                drawn = sample.pop("drawn")
                seconds = time.monotonic() - begin
                sample |= {"page_s": seconds * faster, "pictures": pictures, "looks": counts["looks"]}
                samples.append(sample | {"log bytes": log.stat().st_size})
        finally:
            if watcher.pid:
                watcher.kill()
            for process in (browser, server):
                process.terminate()
                process.wait(60)
    last = samples[-1]
    return {
        "real_s": round(seconds, 1),
        "page_s": round(last["page_s"]),
        "faster": faster,
        "share_of_a_day": {name: round(last[name] / whole, 3) for name, whole in A_DAY.items()},
        "pictures_drawn": int(pictures),
        **{name: counts[name] for name in ("looks", "visitors", "emptied", "restarts")},
        "first_and_last": {name: [round(one[name], 1) for one in (samples[0], last)] for name in samples[0]},
        "growth": {part: growth_a_day(samples, part) for part in PARTS},
        "mib": {part: [round(one[part], 1) for one in samples] for part in (*PARTS, "server", "worker")},
    }


def _memory(server: psutil.Process, browser: psutil.Process, watcher: psutil.Process) -> dict[str, float]:
    """Of Python's processes what each has alone (USS): their share of Python's own pages grows as others end."""
    parts = {"gateway": "serving.gateway", "worker": "serving.worker"}
    found = {"server": _own_mib(server), "watch": _own_mib(watcher), "browser": tree_mib(browser)}
    for child in server.children():
        line = " ".join(child.cmdline())
        found |= {name: _own_mib(child) for name, word in parts.items() if word in line}
    return found


def _own_mib(process: psutil.Process) -> float:
    return float(process.memory_full_info().uss / 2**20)


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


def faults(record: Mapping[str, Any]) -> list[str]:
    """What of a record is not as it should be. The last visitor may still be at the page."""
    found = [f"{part} grows" for part, one in record["growth"].items() if one["verdict"] == "grows"]
    if record["restarts"]:
        found.append(f"the watch restarted something {record['restarts']} times")
    if not record["visitors"] - 1 <= record["emptied"] <= record["visitors"]:
        found.append(f"the page was emptied {record['emptied']} times for {record['visitors']} visitors")
    return found


def main() -> int:
    """Run, print, write the record; 1 where a part grows, or the watch did what it should not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--faster", type=float, default=144, help="how much faster the page's clock runs")
    parser.add_argument("--results", type=Path, default=Path("bench-results"))
    options = parser.parse_args()
    record = {**environment("websockets", "starlette", "uvicorn"), "kind": "kiosk", "size": "pocket"}
    record["load_average"] = [round(load, 1) for load in os.getloadavg()]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        record |= play(Path(folder), options.minutes, options.faster)
    options.results.mkdir(parents=True, exist_ok=True)
    path = write_record(options.results, "pocket-kiosk", record)
    print(json.dumps(record, indent=1))
    print(path)
    for fault in faults(record):
        print(f"error: {fault}", file=sys.stderr)
    return 1 if faults(record) else 0


if __name__ == "__main__":
    sys.exit(main())
