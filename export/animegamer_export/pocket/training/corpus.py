"""The training corpus: whole games, every turn rendered; and the same games as text and first frames for the predictor.

A game's turns lie one after another, so clip `g * turns + k` is turn k of game g. Knows nothing of the networks.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from animegamer_export.pocket.world import clips as clip_files
from animegamer_export.pocket.world.sampling import sample_game
from animegamer_export.pocket.world.scene import FRAMES, Scene, position_name


@dataclass(frozen=True, slots=True)
class Corpus:
    """Games of equal length: clips uint8 [games * turns, frames, H, W, 3] (memory-mapped), and a row for each clip."""

    clips: np.ndarray
    scenes: list[Scene]
    instructions: list[str]
    turns: int

    @property
    def games(self) -> int:
        """How many games there are."""
        return len(self.scenes) // self.turns

    @property
    def shifted(self) -> list[bool]:
        """Of each clip: whether it starts at another named position than the turn before it; first turns do not."""
        spots = [position_name(scene.start_x) for scene in self.scenes]
        return [index % self.turns > 0 and spot != spots[index - 1] for index, spot in enumerate(spots)]


def build(folder: Path, games: int, turns: int, seed: int, train: bool = True, frames: int = FRAMES) -> Corpus:
    """Sample and render the games into `folder` (or only the first `frames` of every turn), or read them back."""
    facts = {"games": games, "turns": turns, "seed": seed, "train": train, "frames": frames}
    done = folder / "corpus.json"
    if not done.exists() or json.loads(done.read_text(encoding="utf-8"))["facts"] != facts:
        rng = random.Random(seed)
        rows = [row for _ in range(games) for row in sample_game(rng, turns, train=train)]
        clip_files.write([scene for scene, _ in rows], folder, processes=2, frames=frames)
        whole = json.dumps({"facts": facts, "instructions": [text for _, text in rows]}, ensure_ascii=False)
        done.write_text(whole, encoding="utf-8")
    clips, scenes = clip_files.read(folder)
    return Corpus(clips, scenes, json.loads(done.read_text(encoding="utf-8"))["instructions"], turns)
