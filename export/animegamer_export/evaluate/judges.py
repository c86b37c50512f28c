"""Judges of what clips show. Each knows one world, and is installed with the package that made it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Protocol

from animegamer_rt.bundle.loader import Bundle

from .metrics import Clip

JUDGES = "animegamer_export.judges"
"""Entry point group. Each is a function(bundle) -> ClipJudge, or None for a bundle of another world."""


class ClipJudge(Protocol):
    """Reads clips of one world, uint8 [17, H, W, 3] each. `words` names the judge in records."""

    @property
    def words(self) -> str: ...

    def score(self, clips: Sequence[Clip], instructions: Sequence[str]) -> float:
        """How well first turns show their instructions, 0 to 1; one instruction per clip, in the same order."""
        ...


def judge_of(bundle: Bundle) -> ClipJudge | None:
    """The first installed judge that knows the bundle's world; None if there is none."""
    found = (point.load()(bundle) for point in sorted(entry_points(group=JUDGES)))
    return next((judge for judge in found if judge is not None), None)
