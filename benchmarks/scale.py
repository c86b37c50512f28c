"""Simulates many servers and players: waits by load, failures a day, cost of 1000 turns, and what breaks first.

`python benchmarks/scale.py` (seconds) calibrates itself by the newest records in benchmarks/results and writes one of
kind `scale`, which docs/SCALE.md cites and `plots.py` draws. Each input says whether it was measured, and where, or
assumed, and why. The simulation is exact for its model: a discrete-event queue, first come first served in each pool
of engines that share their sessions; pools do not help each other.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from animegamer_rt.bench.records import Record, read_records
from animegamer_rt.bundle.files import make_folder
from animegamer_rt.profiling.host import environment, write_record

RESULTS = Path(__file__).resolve().parent / "results"
SEED = 20261125
DAY_S, HOUR_S = 86_400.0, 3600.0
PLAYERS_PER_ENGINE = (2, 4, 6, 8, 10, 12, 14, 16, 18, 20)
ENGINES = (1, 10, 100, 1000)
PLAYED_S, WARM_UP_S = 900.0, 150.0
"""Simulated time, and how much of its beginning is not counted."""
WAIT_GOAL_S = 1.0
"""Of the 95th percentile: longest wait in the queue at which a game still feels played, for the cost."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How players are spread. workers: engines of one server. even: as a router does; else at random, as DNS does."""

    name: str
    workers: int
    even: bool


LAYOUTS = (
    Layout("servers of 1 engine, at random", 1, False),
    Layout("servers of 1 engine, by the router", 1, True),
    Layout("servers of 8 engines, at random", 8, False),
)


@dataclass(frozen=True, slots=True)
class Times:
    """A log-normal time in seconds, by its median and 95th percentile."""

    p50: float
    p95: float

    def draw(self, chance: np.random.Generator, count: int) -> Iterator[float]:
        """Times without end, drawn `count` at once."""
        sigma = math.log(self.p95 / self.p50) / 1.645
        while True:
            yield from self.p50 * np.exp(sigma * chance.standard_normal(count))

    @property
    def mean(self) -> float:
        """The mean."""
        return self.p50 * math.exp((math.log(self.p95 / self.p50) / 1.645) ** 2 / 2)


def waits(
    chance: np.random.Generator, players: int, workers: int, service: Times, think: Times, until_s: float
) -> list[tuple[float, float]]:
    """One pool: the time at which each turn was asked for, and how long it waited for an engine, both in seconds."""
    serving, thinking = service.draw(chance, 1024), think.draw(chance, 1024)
    asks = [chance.uniform(0, think.p95) for _ in range(players)]
    heapq.heapify(asks)
    free = [0.0] * workers
    found = []
    while asks and asks[0] < until_s:
        asked = asks[0]
        start = max(asked, free[0])
        end = start + next(serving)
        heapq.heapreplace(free, end)
        heapq.heapreplace(asks, end + next(thinking))
        found.append((asked, start - asked))
    return found


def crowd(layout: Layout, engines: int, per_engine: int, service: Times, think: Times, seed: int) -> dict[str, Any]:
    """All pools of a layout: turns a second of an engine, how busy it is, and the waits in the queue."""
    chance = np.random.default_rng(seed)
    pools = max(1, engines // layout.workers)
    workers, players = min(layout.workers, engines), engines * per_engine
    each = np.full(pools, players // pools)
    each[: players % pools] += 1
    if not layout.even:
        each = np.bincount(chance.integers(pools, size=players), minlength=pools)
    turns = [
        turn
        for count in each
        for turn in waits(chance, int(count), workers, service, think, PLAYED_S)
        if turn[0] >= WARM_UP_S
    ]
    queue = np.array([wait for _, wait in turns])
    rate = len(queue) / (PLAYED_S - WARM_UP_S)
    return {
        "layout": layout.name,
        "engines": engines,
        "players_per_engine": per_engine,
        "turns_per_s_of_an_engine": round(rate / (pools * workers), 4),
        "busy": round(min(1.0, rate * service.mean / (pools * workers)), 4),
        "wait_s": {f"p{p}": round(float(np.percentile(queue, p)), 3) for p in (50, 95, 99)},
        "n": len(queue),
    }


def failures(inputs: dict[str, Any], engines: int, turns_per_s: float) -> dict[str, Any]:
    """What fails in a mean day: hardware and processes, turns that are played again, and players who wait for it."""
    value = {name: entry["value"] for name, entry in inputs.items()}
    hardware = engines * DAY_S / HOUR_S / value["engine_hours_between_hardware_failures"]
    processes = engines * DAY_S / HOUR_S / value["engine_hours_between_process_deaths"]
    busy = min(1.0, turns_per_s * Times(**value["turn_s"]).mean)
    down_s = hardware * value["hardware_repair_s"] + processes * value["process_restart_s"]
    return {
        "engines": engines,
        "hardware_failures_per_day": round(hardware, 3),
        "process_deaths_per_day": round(processes, 2),
        "turns_played_again_per_day": round((hardware + processes) * busy, 2),
        "share_of_time_an_engine_is_down": round(down_s / (engines * DAY_S), 6),
    }


def limits(inputs: dict[str, Any]) -> list[dict[str, Any]]:
    """Engines, each as busy as it can be, that fill each shared part; the fewest first: that part breaks first."""
    value = {name: entry["value"] for name, entry in inputs.items()}
    rate = 1 / Times(**value["turn_s"]).mean
    parts = (
        ("one server process, its own work for each turn", rate * value["server_s_per_turn"], 1.0, "core"),
        ("one router, its own work for each turn", rate * value["router_s_per_turn"], 1.0, "core"),
        ("one network link of 10 Gbit/s, jpeg at full size", rate * value["jpeg_bytes"], 1.25e9, "byte/s"),
        ("one network link of 10 Gbit/s, raw at full size", rate * value["raw_bytes"], 1.25e9, "byte/s"),
        ("one disk of 1 TB, every turn of 30 days", rate * value["store_bytes_per_turn"] * 30 * DAY_S, 1e12, "byte"),
        ("one disk of 500 synced writes a second", rate, 500.0, "write/s"),
    )
    found = [
        {
            "part": name,
            "of_an_engine": round(used, 6),
            "there_is": there_is,
            "unit": unit,
            "engines": int(there_is / used),
        }
        for name, used, there_is, unit in parts
    ]
    return sorted(found, key=lambda one: one["engines"])


def read_inputs(results: Path, prices: Path) -> dict[str, Any]:
    """What the simulation needs: `value`, `unit`, and `measured` (in which record) or `assumed` (why so)."""
    wire = read_records(results, "wire")[-1]
    turns = [record for record in read_records(results) if record["bundle"] == "pocket" and record["device"] == "cpu"]
    held = read_records(results, "capacity")[-1]
    price = json.loads(prices.read_text(encoding="utf-8"))["machines"][0]

    def measured(value: object, unit: str, record: Record, what: str) -> dict[str, Any]:
        where = f"{what}; record of {record['date'][:10]}, {record['machine']}"
        return {"value": value, "unit": unit, "measured": where}

    def assumed(value: object, unit: str, why: str) -> dict[str, Any]:
        return {"value": value, "unit": unit, "assumed": why}

    plans = [wire["plan"]]
    played = [one for one in wire["crowd"] if one["engines"] == "cpu" and one.get("plans", plans) == plans]
    full = max(played, key=lambda one: one["sessions"])
    clips = {one["codec"]: one["bytes"] for one in wire["transfer"] if one["size"] == "full-size"}
    many = max(held["crowds"], key=lambda one: one["sessions"])
    return {
        "turn_s": measured(
            {name: full["interval_s"][name] for name in ("p50", "p95")},
            "s",
            wire,
            f"pocket on 2 cores, all of them busy, n = {full['interval_s']['n']}",
        ),
        "think_s": assumed({"p50": 8.0, "p95": 25.0}, "s", "a player looks at a clip of 2.1 s, thinks and types"),
        "server_s_per_turn": measured(
            many["server_s_per_turn"],
            "s",
            held,
            f"processor time of the server with {many['sessions']} players, raw frames",
        ),
        "router_s_per_turn": measured(held["router_s_per_turn"], "s", held, "processor time of a router, raw frames"),
        "jpeg_bytes": measured(clips["jpeg"], "byte", wire, "a clip at full size"),
        "raw_bytes": measured(clips["raw"], "byte", wire, "a clip at full size"),
        "store_bytes_per_turn": measured(
            held["store_bytes_per_turn"], "byte", held, "growth of the file with each turn of a game that goes on"
        ),
        "process_restart_s": measured(
            turns[-1]["start_to_prompt_seconds"], "s", turns[-1], "pocket, from the start of a process to its prompt"
        ),
        "engine_hours_between_process_deaths": assumed(720.0, "h", "one in a month; none died by itself in the soak"),
        "engine_hours_between_hardware_failures": assumed(
            50_000.0, "h", "419 unexpected interruptions of 16,384 H100 in 54 days (Llama 3, arXiv 2407.21783)"
        ),
        "hardware_repair_s": assumed(900.0, "s", "somebody restores the state folder on another machine"),
        "price_per_hour": assumed(price["per_hour"], "EUR", f"{price['name']}: leaderboard/prices.json"),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate, print and write the record."""
    parser = argparse.ArgumentParser(description="Simulate many servers, engines and players.")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help="default: %(default)s")
    options = parser.parse_args(arguments)
    make_folder(options.results)
    inputs = read_inputs(RESULTS, Path(__file__).with_name("leaderboard") / "prices.json")
    service, think = Times(**inputs["turn_s"]["value"]), Times(**inputs["think_s"]["value"])
    price = float(inputs["price_per_hour"]["value"])
    crowds = []
    for layout in LAYOUTS:
        for per_engine in PLAYERS_PER_ENGINE:
            crowds.append(crowd(layout, 96, per_engine, service, think, SEED))
            print(crowds[-1], flush=True)
    sizes = [crowd(LAYOUTS[1], engines, 12, service, think, SEED) for engines in ENGINES]
    largest = crowd(LAYOUTS[1], 1000, 100, service, think, SEED)
    costs = []
    for layout in LAYOUTS:
        good = [one for one in crowds if one["layout"] == layout.name and one["wait_s"]["p95"] <= WAIT_GOAL_S]
        if good:
            rate = good[-1]["turns_per_s_of_an_engine"]
            cost = {"per_1000_turns": round(price / HOUR_S * 1000 / rate, 4), "currency": "EUR"}
            costs.append({"layout": layout.name, **cost, "players_per_engine": good[-1]["players_per_engine"]})
    record = {
        **environment(),
        "kind": "scale",
        "seed": SEED,
        "wait_goal_s": WAIT_GOAL_S,
        "inputs": inputs,
        "crowds": crowds,
        "sizes": [*sizes, largest],
        "failures": [failures(inputs, engines, sizes[-1]["turns_per_s_of_an_engine"]) for engines in ENGINES],
        "costs": costs,
        "limits": limits(inputs),
    }
    for name in ("sizes", "failures", "costs", "limits"):
        print(name, *record[name], sep="\n  ")
    print(f"record: {write_record(options.results, 'scale', record)}")


if __name__ == "__main__":
    main()
