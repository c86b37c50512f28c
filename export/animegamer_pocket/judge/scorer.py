"""The judge of the pocket world, in the form that the export's commands use (`animegamer_export.judges`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from animegamer_export.evaluate.metrics import Clip
from animegamer_pocket.world.captions import parse, said_parts
from animegamer_pocket.world.scene import CHARACTERS, HEIGHT, WIDTH
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.errors import ConfigError

from .reading import Judge, Reading


@dataclass(frozen=True, slots=True)
class JudgeScorer:
    """A `ClipJudge` of the pocket world."""

    judge: Judge
    words: str = "pocket's judge: characters once each, place and motion"

    def score(self, clips: Sequence[Clip], instructions: Sequence[str]) -> float:
        """The share, 0..1, of what the instructions name that the judge sees. Raises ConfigError for other clips."""
        try:
            readings = self.judge.read(np.stack(clips))
            right = [
                right for reading, text in zip(readings, instructions, strict=True) for right in _matches(reading, text)
            ]
        except ValueError as error:
            raise ConfigError(
                "pocket's judge cannot judge these clips", found=str(error), do="use it with pocket's clips only"
            ) from error
        return sum(right) / len(right)


def judge_of(bundle: Bundle) -> JudgeScorer | None:
    """The entry point: the judge for a bundle of the pocket world; None for another world."""
    geometry = bundle.manifest.geometry
    known = bundle.manifest.world.characters == CHARACTERS and (geometry.height, geometry.width) == (HEIGHT, WIDTH)
    return JudgeScorer(Judge()) if known else None


def _matches(reading: Reading, text: str) -> Iterator[bool]:
    """Whether a first turn shows its motion, and its characters and place if the instruction names them."""
    scene, named = parse(text), said_parts(text)
    yield reading.motion == scene.motion
    if "characters" in named:
        yield reading.shows_once_each(frozenset(scene.characters))
    if "place" in named:
        yield reading.place == scene.place
