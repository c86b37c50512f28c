"""A corpus: games of equal length, their instructions and their rendered turns.

Clip `g * turns + k` is turn k of game g.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from animegamer_pocket.world import clips as clip_files
from animegamer_pocket.world.captions import complete_caption
from animegamer_pocket.world.sampling import sample_game
from animegamer_pocket.world.scene import FRAMES, Scene


@dataclass(frozen=True, slots=True)
class Corpus:
    """clips: uint8 [games * turns, frames, H, W, 3], memory-mapped; scenes and instructions: one per clip."""

    clips: np.ndarray
    scenes: list[Scene]
    instructions: list[str]
    turns: int

    @property
    def games(self) -> int:
        """Number of games."""
        return len(self.scenes) // self.turns

    @property
    def captions(self) -> list[str]:
        """The complete caption of each clip: what the reader makes of its instruction."""
        return [complete_caption(scene) for scene in self.scenes]

    @property
    def moved(self) -> list[bool]:
        """Per clip, whether it starts at another spot than the turn before. False for first turns."""
        spots = [scene.spot for scene in self.scenes]
        return [index % self.turns > 0 and spot != spots[index - 1] for index, spot in enumerate(spots)]


def build_corpus(folder: Path, games: int, turns: int, seed: int, train: bool = True, frames: int = FRAMES) -> Corpus:
    """Samples games into `folder` and renders the first `frames` frames of each turn, or loads existing ones."""
    key = {"games": games, "turns": turns, "seed": seed, "train": train, "frames": frames}
    path = folder / "corpus.json"
    if not path.exists() or json.loads(path.read_text(encoding="utf-8"))["facts"] != key:
        rng = random.Random(seed)
        rows = [row for _ in range(games) for row in sample_game(rng, turns, train=train)]
        clip_files.write([scene for scene, _ in rows], folder, frames=frames)
        record = json.dumps({"facts": key, "instructions": [text for _, text in rows]}, ensure_ascii=False)
        path.write_text(record, encoding="utf-8")
    clips, scenes = clip_files.read(folder)
    return Corpus(clips, scenes, json.loads(path.read_text(encoding="utf-8"))["instructions"], turns)
