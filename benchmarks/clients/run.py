"""What each client adds to a turn: time, allocations, CPU when idle: `python -m benchmarks.clients.run`.

A client is a driver of client/conformance; it is built first. Writes a record as JSON, and prints a line for each
client.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from client.conformance.suite import ROOT, Process

from .drivers import CLIENTS, command

TEXT = "Mirel waves gently in the city by day."
WARM_TURNS, LOOP_TURNS, HELD_FRAMES = 3, 5, 340
IDLE_S = 10.0
OVERHEAD_GOALS_MS = {"native": 5.0, "unity": 15.0}
"""Largest overhead of a turn over the server's own time (median), by the client's name."""
POLL_GOAL_S, IDLE_GOAL_PERCENT = 0.002, 0.5


def ask(driver: Process, command: str) -> str:
    """The driver's answer. Raises RuntimeError for an error."""
    answer = driver.ask(command)
    if not answer.startswith(("ok", "{")):
        raise RuntimeError(f"{command!r} got {answer!r}")
    return answer


def figures(values_s: list[float]) -> dict[str, float | int]:
    """Median, 95th percentile and maximum, in milliseconds."""
    ordered = sorted(1000 * value for value in values_s)
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    named = {"n": len(ordered), "median_ms": statistics.median(ordered), "p95_ms": p95, "max_ms": ordered[-1]}
    return {name: round(value, 4) for name, value in named.items()}


def cpu_percent(pid: int) -> float:
    """CPU that a program takes for the next seconds, in percent of a core."""

    def seconds() -> float:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    before = seconds()
    time.sleep(IDLE_S)
    return 100 * (seconds() - before) / IDLE_S


def turns(driver: Process, address: str, count: int) -> dict[str, Any]:
    """Overhead of a turn against a live server, the longest poll in a loop of 60 Hz, CPU while nothing happens."""
    driver.ask("started")  # not a command: the answer shows that start-up, which takes CPU too, is over
    without = cpu_percent(driver.pid)  # an engine's own
    ask(driver, f"new {address} 30")
    ask(driver, "open 3")
    ask(driver, f"measure-turns {WARM_TURNS} {TEXT}")
    timed = json.loads(ask(driver, f"measure-turns {count} {TEXT}"))
    overhead = [wall - server for wall, server in zip(timed["wall_s"], timed["server_s"], strict=True)]
    loop = driver.ask(f"measure-loop {LOOP_TURNS} {TEXT}")
    idle = cpu_percent(driver.pid) - without
    looped = json.loads(loop) if loop.startswith("{") else None  # a client whose calls wait has no poll
    return {"overhead": figures(overhead), "loop_60_hz": looped, "idle_cpu_percent": round(idle, 3)}


def missed(name: str, result: dict[str, Any]) -> list[str]:
    """The goals that a client missed."""
    found = []
    if "overhead" in result and result["overhead"]["median_ms"] > OVERHEAD_GOALS_MS.get(name, float("inf")):
        found.append("overhead")
    if result.get("loop_60_hz") and result["loop_60_hz"]["longest_poll_s"] > POLL_GOAL_S:
        found.append("longest poll")
    if result.get("idle_cpu_percent", 0) >= IDLE_GOAL_PERCENT:
        found.append("idle CPU")
    if result.get("allocations") or result.get("collections"):
        found.append("allocations")
    return [f"{name}: {each}" for each in found]


def frames(driver: Process) -> dict[str, Any]:
    """Time from the last byte of a full-size frame to its callback, and allocations of a frame."""
    server = Process([sys.executable, "-m", "benchmarks.clients.frame_server"], ROOT)
    try:
        ask(driver, f"new {server.read()} 30")
        ask(driver, "open 3")
        seen = json.loads(ask(driver, f"measure-frames {HELD_FRAMES} {TEXT}"))
        sent = json.loads(server.ask("times"))[-len(seen["at_ns"]) :]
        latency = [1e-9 * (at - left) for at, left in zip(seen.pop("at_ns"), sent, strict=True)]
        return {"last_byte_to_callback": figures(latency), **seen}
    finally:
        server.close()


def main() -> int:
    """Returns 1 if a client missed a goal; the goals are in README.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--client", action="append", choices=CLIENTS, help="measure only this client; repeatable")
    parser.add_argument("--turns", type=int, default=100, help="timed turns of each client (default: 100)")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "bench-results" / "clients.json", help="default: %(default)s"
    )
    chosen = parser.parse_args()
    drivers = {name: command(name) for name in chosen.client or CLIENTS}
    results: dict[str, Any] = {name: {} for name in drivers}
    with tempfile.TemporaryDirectory() as state:
        serve = [sys.executable, "-m", "animegamer_rt", "serve", "--device", "simulated:0.5", "--port", "0"]
        settings = Path(state) / "serve.toml"
        settings.write_text("turns_per_minute = 0\n", encoding="utf-8")
        options = ["--config", str(settings), "--state-dir", state]
        server, line = Process([*serve, *options], stderr=subprocess.DEVNULL), ""
        while not line.startswith("ready "):
            line = server.read()
        address = line.split()[1]
        try:
            for name, words in drivers.items():
                driver = Process(words)
                try:
                    results[name] = {**turns(driver, address, chosen.turns), **frames(driver)}
                finally:
                    driver.close()
                print(json.dumps({name: results[name]}), flush=True)
        finally:
            server.terminate()
    about = {
        "kind": "clients",
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "turns": chosen.turns,
    }
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps({**about, "clients": results}, indent=1) + "\n", encoding="utf-8")
    found = [goal for name, result in results.items() for goal in missed(name, result)]
    print(f"wrote {chosen.out}; goals missed: {', '.join(found) or 'none'}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
