"""Whether pocket's clips show what was asked: the share of characters, places and motions that its judge reads as said.

Knows pocket's words and its judge; nothing of plans nor of how clips came about.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from animegamer_export.evaluate.metrics import Clip
from animegamer_export.pocket.world.captions import parse, said_parts
from animegamer_rt.errors import ConfigError

from .model import Judge, Reading, load_judge, read_clips


@dataclass(frozen=True, slots=True)
class JudgeScorer:
    """A `Scorer` of first turns of the pocket world."""

    judge: Judge
    words: str = "pocket's judge: characters, place and motion"

    def score(self, clips: Sequence[Clip], instructions: Sequence[str]) -> float:
        """The share, over all clips and what their instructions say. Raises ConfigError for what cannot be judged."""
        try:
            readings = read_clips(self.judge, np.stack(clips))
            right = [
                good for reading, text in zip(readings, instructions, strict=True) for good in _as_said(reading, text)
            ]
        except ValueError as error:
            raise ConfigError(
                "pocket's judge cannot judge this", found=str(error), do="give it pocket's clips and words"
            ) from error
        return sum(right) / len(right)


def open_scorer(path: Path) -> JudgeScorer:
    """The judge that a pocket build left in its work folder. Raises ConfigError if the file is not one."""
    try:
        return JudgeScorer(load_judge(path))
    except (OSError, EOFError, LookupError, RuntimeError, TypeError, ValueError, pickle.UnpicklingError) as error:
        raise ConfigError(
            "not a judge of pocket",
            where=path,
            found=getattr(error, "strerror", None) or str(error).partition("\n")[0],
            expected="judge.pt of a pocket build's work folder",
        ) from error


def _as_said(reading: Reading, text: str) -> Iterator[bool]:
    """Of a first turn: is its motion as said, and are characters and place, where it says them?"""
    scene, said = parse(text), said_parts(text)
    yield reading.motion == scene.motion
    if "characters" in said:
        yield reading.characters == frozenset(scene.characters)
    if "place" in said:
        yield reading.place == scene.place
