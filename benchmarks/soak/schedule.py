"""The games and faults of a soak, determined by a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

from animegamer_rt.bundle.manifest import World

GAME_TURNS = 40
"""Turns per game; then its session is closed and the next one is opened."""
SCRIPTS = 16
"""Number of different games. Each is played by several sessions at different times, but compared only once."""
ABANDONED = 2
"""One game in this many is never closed."""
SETTLED = 0.6
"""Share of the turns after which no process is killed any more, to show the memory growth of the last ones."""
ENDING = (
    "worker killed",
    "worker stopped for long",
    "worker wedged",
    "poison",
    "server killed",
    "server killed, bundle damaged",
)
"""Faults that replace a process."""
LASTING = (
    "worker stopped",
    "server stopped",
    "machine frozen",
    "greedy client",
    "page flooded",
    "client vanishes",
    "client reads slowly",
    "garbage",
    "disk full",
    "disk read-only",
    "disk broken",
    "clock jumps",
)
"""Faults that every process survives."""
KINDS = ENDING + LASTING
SHORTEST_S, LONGEST_S = 0.2, 2.0
"""Duration of faults without their own."""
JUMPS_S = (-30 * 86400.0, -3600.0, 3600.0, 86400.0, 400 * 86400.0)
"""Largest clock error."""


@dataclass(frozen=True, slots=True)
class Fault:
    """at: number of finished turns at which it strikes. seconds: its duration, or the size of a clock jump.

    player: the index of the affected client, if any.
    """

    at: int
    kind: str
    seconds: float
    player: int


@dataclass(frozen=True, slots=True)
class Game:
    """player, number: its player and its index. turns: its length. script: determines its instructions."""

    player: int
    number: int
    turns: int

    @property
    def script(self) -> str:
        """Games of one script have the same seed and instructions; games that start together have different ones."""
        return str((self.player + self.number) % SCRIPTS)

    @property
    def left_open(self) -> bool:
        """Whether its session is never closed."""
        return self.number % ABANDONED == 0

    def __str__(self) -> str:
        return f"{self.player}.{self.number}"


def games(player: int, turns: int, game_turns: int = GAME_TURNS) -> list[Game]:
    """The games of a player, with this many turns in all."""
    counts = [min(game_turns, turns - first) for first in range(0, turns, game_turns)]
    return [Game(player, number, count) for number, count in enumerate(counts)]


def faults(seed: int, count: int, turns: int, players: int, longest_s: float = LONGEST_S) -> list[Fault]:
    """A schedule of `count` faults over `turns` turns, with all kinds about equally often, in order."""
    chance = random.Random(f"faults {seed}")
    last_ending = round(turns * SETTLED)
    schedule = []
    for kind in (KINDS[number % len(KINDS)] for number in range(count)):
        at = chance.randrange(1, last_ending if kind in ENDING else turns)
        seconds = chance.choice(JUMPS_S) if kind == "clock jumps" else chance.uniform(SHORTEST_S, longest_s)
        schedule.append(Fault(at, kind, round(seconds, 2), chance.randrange(players)))
    return sorted(schedule, key=lambda fault: fault.at)


def instruction(world: World, seed: int, script: str, turn: int) -> str:
    """The instruction of a turn of a script."""
    chance = random.Random(f"{seed} {script} {turn}")
    who, how = chance.choice(world.characters), chance.choice(world.adverbs)
    return f"Character: {who}; Motion: {how} {chance.choice(world.motions)}; Background: {chance.choice(world.places)}."


def game_seed(seed: int, script: str) -> int:
    """The seed of the games of a script."""
    return random.Random(f"{seed} {script}").randrange(2**31)
