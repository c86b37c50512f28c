"""Scores clips of the pocket world: the share of characters, places and motions that the judge reads as instructed."""

from __future__ import annotations

import pickle
import warnings
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
    """Scores first turns of the pocket world, for the search of plans."""

    judge: Judge
    words: str = "pocket's judge: characters, place and motion"

    def score(self, clips: Sequence[Clip], instructions: Sequence[str]) -> float:
        """The share, 0..1, over all that the instructions name. Raises ConfigError for other clips or instructions."""
        try:
            readings = read_clips(self.judge, np.stack(clips))
            right = [
                right for reading, text in zip(readings, instructions, strict=True) for right in _matches(reading, text)
            ]
        except ValueError as error:
            raise ConfigError(
                "pocket's judge cannot judge this", found=str(error), do="give it pocket's clips and words"
            ) from error
        return sum(right) / len(right)


def open_scorer(path: Path) -> JudgeScorer:
    """Open judge.pt, which a pocket build leaves in its work folder. Raises ConfigError if it is not a judge."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, about files that are refused here
            return JudgeScorer(load_judge(path))
    except (OSError, EOFError, LookupError, RuntimeError, TypeError, ValueError, pickle.UnpicklingError) as error:
        raise ConfigError(
            "not a judge of pocket",
            where=path,
            found=_reason(error),
            expected="judge.pt of a pocket build's work folder",
        ) from error


def _reason(error: Exception) -> str:
    """In our words: torch's advises to load the file without its protection, which nobody should."""
    if isinstance(error, OSError):
        return error.strerror or "a file that cannot be read"
    if isinstance(error, (RuntimeError, TypeError)) and not isinstance(error, pickle.UnpicklingError):
        return "weights of another network, or a damaged file"
    return "no file of weights"


def _matches(reading: Reading, text: str) -> Iterator[bool]:
    """Does a first turn show its motion, and its characters and place if the instruction names them?"""
    scene, said = parse(text), said_parts(text)
    yield reading.motion == scene.motion
    if "characters" in said:
        yield reading.characters == frozenset(scene.characters)
    if "place" in said:
        yield reading.place == scene.place
