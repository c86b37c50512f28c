"""What a comparison says: the largest error of one recorded quantity and the tolerance it is held to.

Knows no network and no file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

# Largest absolute errors in float32 on a CPU. Source: MODEL.md section 7.
DENOISER = 1e-5
SAMPLER = 1e-4
VAE = 1e-4
PREDICTOR = 1e-5
ENCODER = 1e-6
# With the low-rank factors merged into the weights each weight moves by half a unit in the last place; the published
# 1e-5 is for factors kept apart and each read-out run alone; as played, sums have another order. Recorded values are
# themselves 1e-5 away from the same network in float64.
PREDICTOR_MERGED = 1e-4
# Copies and closed formulas, rounded to float32.
SCHEDULE = 1e-6


@dataclass(frozen=True, slots=True)
class Check:
    """One recorded quantity: passes when error <= tolerance (an error of NaN fails).

    `variant` names another way to run the same set, reported on a line of its own.
    """

    what: str
    error: float
    tolerance: float
    variant: str = ""

    @property
    def passed(self) -> bool:
        """Whether the error is within the tolerance."""
        return self.error <= self.tolerance

    @property
    def severity(self) -> float:
        """Error in units of the tolerance, infinite where nothing is tolerated and something differs."""
        if math.isnan(self.error):
            return math.inf
        if self.tolerance == 0.0:
            return 0.0 if self.error == 0.0 else math.inf
        return self.error / self.tolerance


def compare(what: str, ours: Tensor, recorded: Tensor, tolerance: float) -> Check:
    """The largest absolute difference; tensors of other shapes differ without bound."""
    if ours.shape != recorded.shape:
        return Check(f"{what} (shape {list(ours.shape)}, recorded {list(recorded.shape)})", math.inf, tolerance)
    return Check(what, float((ours.double() - recorded.double()).abs().max()), tolerance)


def count_differences(what: str, ours: Sequence[object], recorded: Sequence[object]) -> Check:
    """How many places differ, none of which is tolerated."""
    differing = sum(a != b for a, b in zip(ours, recorded, strict=False)) + abs(len(ours) - len(recorded))
    return Check(what, float(differing), 0.0)
