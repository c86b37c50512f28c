"""What `animegamer-rt bench run` plays: frozen suites, or one game of the bundle's examples.

A suite never changes once figures cite it; another length, order or instruction gets another number.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from animegamer_rt.bundle.files import user_data_folder
from animegamer_rt.errors import ConfigError

TURNS = 15
"""Measured without a suite."""
TIMED = (
    "A turn: from the instruction in at the calling program to the last frame out at it, in one process and one stream,"
    " without a server and without encoding video. Stages: predictor (text and history to game state and shot),"
    " denoiser (shot to latents), vae (latents to frames); time between them counts in the turn. Warm-up turns come"
    " first and are not counted. No result is reused: every turn reads its prompt, denoises and decodes anew."
)
ONE_GAME = (
    "All turns are of one game with seed 7 that plays the bundle's example instructions; its history is full, after"
    " history_turns + 1 turns of warm-up."
)
SUITE_GAMES = (
    "Suite 1: 16 games of 12 turns in everyday words, each game with a seed of its own, so that its history grows from"
    " none to full; at least 600 s and at least 64 turns a plan."
)


@dataclass(frozen=True, slots=True)
class Suite:
    """One plan is timed for at least `seconds` and at least `turns`; one stream, batch 1.

    games: instructions of each game, played in order, then from the first again. A game's seed is `seed` plus the
    number of games played before, so no turn is repeated.
    """

    number: int
    games: tuple[tuple[str, ...], ...]
    seconds: float = 600.0
    turns: int = 64
    seed: int = 7

    @property
    def sha256(self) -> str:
        """Hash of the instructions."""
        games = json.dumps(self.games, separators=(",", ":"))
        return hashlib.sha256(games.encode()).hexdigest()


HASHES: Mapping[int, str] = MappingProxyType({1: "f487e46e278cc7bc29ed815272a3f6afd3ec521f5a0140a52685f333f2de2776"})
"""Suite number -> hash of its instructions."""


def load_suite(number: int) -> Suite:
    """A frozen suite. Raises ConfigError for an unknown number, or if its instructions have changed."""
    if number not in HASHES:
        known = ", ".join(map(str, HASHES))
        raise ConfigError("no such suite", where="--suite", found=number, expected=known)
    file = Path(__file__).with_name(f"suite-{number}.txt")
    lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    suite = Suite(number, tuple(tuple(game.split("\n")) for game in "\n".join(lines).strip().split("\n\n")))
    if suite.sha256 != HASHES[number]:
        do = "reinstall animegamer-rt: figures would not be comparable"
        raise ConfigError("the suite's instructions have changed", where=file.name, found=suite.sha256, do=do)
    return suite


def results_folder() -> Path:
    """Default folder of records: the user's data folder, outside any checkout."""
    return user_data_folder() / "bench"
