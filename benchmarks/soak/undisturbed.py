"""Replays the games of a soak without a server and without faults, and compares the frames."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping

from animegamer_rt.api import Player as LocalPlayer
from animegamer_rt.backends.registry import open_engines
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.engine_config import EngineConfig

from .schedule import Game, game_seed, instruction

PROGRESS_TURNS = 100

Played = Mapping[tuple[Game, int], str]
"""Game and turn number -> SHA-256 of its frames."""


def compare(bundle: Bundle, device: str, plan: str, seed: int, played: Played) -> list[tuple[Game, int]]:
    """The turns whose frames differ from those of the same game undisturbed.

    Each script is played once, up to the longest game's length.
    """
    config = EngineConfig("simulated:0" if device.startswith("simulated") else device)
    heard: dict[tuple[str, int], list[Game]] = defaultdict(list)
    for game, turn in played:
        heard[game.script, turn].append(game)
    longest: dict[str, int] = {}
    for script, turn in heard:
        longest[script] = max(turn, longest.get(script, 0))
    wrong, done = list[tuple[Game, int]](), 0
    with LocalPlayer(bundle, open_engines(bundle, config, plan=plan), plan=plan, config=config) as local:
        for script, turns in longest.items():
            again = local.start(seed=game_seed(seed, script))
            for turn in range(1, turns + 1):
                clip = again.turn(instruction(bundle.manifest.world, seed, script, turn))
                digest = hashlib.sha256(clip.frames.tobytes()).hexdigest()
                wrong += [(one, turn) for one in heard[script, turn] if played[one, turn] != digest]
                done += 1
                if done % PROGRESS_TURNS == 0:
                    print(f"          {done} of {sum(longest.values())} turns replayed without a server", flush=True)
    return wrong
