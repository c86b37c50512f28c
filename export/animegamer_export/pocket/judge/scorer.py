"""Scores clips of the pocket world: the share of characters, places and motions that the judge reads as instructed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from animegamer_export.evaluate.metrics import Clip
from animegamer_export.pocket.world.captions import parse, said_parts
from animegamer_rt.errors import ConfigError

from .reading import Judge, Reading


@dataclass(frozen=True, slots=True)
class JudgeScorer:
    """Scores first turns of the pocket world, for the search of plans."""

    judge: Judge
    words: str = "pocket's judge: characters once each, place and motion"

    def score(self, clips: Sequence[Clip], instructions: Sequence[str]) -> float:
        """The share, 0..1, over all that the instructions name. Raises ConfigError for other clips or instructions."""
        try:
            readings = self.judge.read(np.stack(clips))
            right = [
                right for reading, text in zip(readings, instructions, strict=True) for right in _matches(reading, text)
            ]
        except ValueError as error:
            raise ConfigError(
                "pocket's judge cannot judge this", found=str(error), do="give it pocket's clips and words"
            ) from error
        return sum(right) / len(right)


def _matches(reading: Reading, text: str) -> Iterator[bool]:
    """Does a first turn show its motion, and its characters and place if the instruction names them?"""
    scene, said = parse(text), said_parts(text)
    yield reading.motion == scene.motion
    if "characters" in said:
        yield reading.shows_once_each(frozenset(scene.characters))
    if "place" in said:
        yield reading.place == scene.place
