"""Statistics of timed turns: halves, spread, and the ratio of two runs.

Knows numbers; nothing of turns or machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

HALVES_TURNS = 8
"""Fewest turns whose halves can be compared."""
RESAMPLES, CONFIDENCE = 2000, 95
Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Ratio:
    """Median of B over median of A, with the bounds of its 95 % bootstrap interval."""

    value: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """B against A in words; an interval that holds 1 shows no difference."""
        if self.low <= 1 <= self.high:
            return f"no difference found: the ratio's interval, {self.low:.3f} to {self.high:.3f}, holds 1"
        percent, word = 100 * abs(self.value - 1), "slower" if self.value > 1 else "faster"
        return f"B is {percent:.1f} % {word} (ratio {self.low:.3f} to {self.high:.3f} with 95 % confidence)"


def halves_ratio(values: Sequence[float]) -> float | None:
    """Median of the second half over that of the first; None for fewer than HALVES_TURNS values."""
    if len(values) < HALVES_TURNS:
        return None
    middle = len(values) // 2
    return float(np.median(values[middle:]) / np.median(values[:middle]))


def spread(values: Sequence[float]) -> float:
    """The range of the middle half, as a share of the median."""
    low, median, high = np.percentile(values, (25, 50, 75))
    return float((high - low) / median) if median else 0.0


def ratio(first: Sequence[float], second: Sequence[float], games: tuple[Sequence[int], Sequence[int]]) -> Ratio:
    """Median of `second` over median of `first`; whole games are resampled, for turns of one game are alike.

    games: the game of each value. The same arguments give the same interval.
    """
    random = np.random.default_rng(0)
    medians = [_resampled(values, of, random) for values, of in zip((first, second), games, strict=True)]
    low, high = np.percentile(medians[1] / medians[0], ((100 - CONFIDENCE) / 2, (100 + CONFIDENCE) / 2))
    return Ratio(float(np.median(second) / np.median(first)), float(low), float(high))


def _resampled(values: Sequence[float], games: Sequence[int], random: np.random.Generator) -> Values:
    """Medians of RESAMPLES draws with replacement of as many games as there are."""
    timed, of = np.asarray(values, np.float64), np.asarray(games)
    groups = [timed[of == game] for game in np.unique(of)]
    if len(groups) == 1:
        groups = list(timed[:, None])
    draws = random.integers(len(groups), size=(RESAMPLES, len(groups)))
    return np.array([np.median(np.concatenate([groups[one] for one in draw])) for draw in draws])
