"""The frozen suites of `animegamer-rt bench run --suite N`: which games are played, for how long, and their hash.

A suite never changes once figures cite it; another length, order or instruction is another number.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType

from animegamer_rt.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Suite:
    """One plan is timed for at least `seconds` and at least `turns`, whichever is longer; one stream, batch 1.

    games: instructions of each game, played one game after another, then again from the first. `seed` plus the number
    of games played before is a game's seed, so no turn is played twice.
    """

    number: int
    games: tuple[tuple[str, ...], ...]
    seconds: float = 600.0
    turns: int = 64
    seed: int = 7

    @property
    def sha256(self) -> str:
        """Hash of the instructions: of the games as JSON, without blanks."""
        return hashlib.sha256(json.dumps(self.games, separators=(",", ":")).encode()).hexdigest()


HASHES: Mapping[int, str] = MappingProxyType({1: "f487e46e278cc7bc29ed815272a3f6afd3ec521f5a0140a52685f333f2de2776"})
"""Suite number -> hash of its instructions."""


def load_suite(number: int) -> Suite:
    """A frozen suite. Raises ConfigError for an unknown number, or if its instructions were changed."""
    if number not in HASHES:
        known = ", ".join(map(str, HASHES))
        raise ConfigError("no such suite", where="--suite", found=number, expected=known)
    name = f"suite-{number}.txt"
    text = files(__package__).joinpath(name).read_text(encoding="utf-8")
    lines = [line.strip() for line in text.splitlines() if not line.startswith("#")]
    games = [tuple(game.split("\n")) for game in "\n".join(lines).strip().split("\n\n")]
    suite = Suite(number, tuple(games))
    if suite.sha256 != HASHES[number]:
        do = "install animegamer-rt again: its figures would be of no suite"
        raise ConfigError("the suite's instructions were changed", where=name, found=suite.sha256, do=do)
    return suite
