"""Checks of recorded quantities: largest error and tolerance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

# Largest absolute errors in float32 on a CPU. Source: MODEL.md section 7, measured on the recording machine.
DENOISER = 1e-5
SAMPLER = 1e-4
VAE = 1e-4
PREDICTOR = 1e-5
ENCODER = 1e-6
# Merging the LoRA factors moves each weight by half an ulp; the published 1e-5 holds for separate factors and separate
# read-outs, while play sums in another order. Recorded values are themselves 1e-5 from the same network in float64.
PREDICTOR_MERGED = 1e-4
# Copies and closed formulas, rounded to float32.
SCHEDULE = 1e-6
ROUNDINGS = 3.0
"""Multiple of float32 rounding that is granted. Ours and the recording are each one rounding from float64, in any
direction, and either may be twice the other: another processor sums in another order."""


@dataclass(frozen=True, slots=True)
class Check:
    """One recorded quantity; passes when the error is at most `allowed` (NaN fails).

    variant: another way to run the same set, reported separately. ours: our value. rounding and exact_error: distance
    of float64 on this processor from ours and from the recording, if measured; `granted` follows from both.
    """

    what: str
    error: float
    tolerance: float
    variant: str = ""
    ours: Tensor | None = None
    rounding: float = 0.0
    exact_error: float = 0.0

    @property
    def granted(self) -> float:
        """Added to the tolerance for rounding: a multiple of the smaller distance from float64.

        A mistake leaves ours near float64, and a lower precision leaves the recording near it, so neither gains
        anything.
        """
        return ROUNDINGS * min(self.rounding, self.exact_error)

    @property
    def allowed(self) -> float:
        """The largest error that passes."""
        return self.tolerance + self.granted

    @property
    def passed(self) -> bool:
        """Whether the error is within what is allowed."""
        return self.error <= self.allowed

    @property
    def severity(self) -> float:
        """Error relative to what is allowed; infinite if nothing is allowed and something differs."""
        if math.isnan(self.error):
            return math.inf
        if self.allowed == 0.0:
            return 0.0 if self.error == 0.0 else math.inf
        return self.error / self.allowed

    def with_rounding(self, in_float64: Check) -> Check:
        """This check, with its rounding measured by the same check in float64."""
        if self.ours is None or in_float64.ours is None or self.ours.shape != in_float64.ours.shape:
            return self
        rounding = _largest_difference(self.ours, in_float64.ours)
        return replace(self, rounding=rounding, exact_error=in_float64.error)


def compare(what: str, ours: Tensor, recorded: Tensor, tolerance: float) -> Check:
    """The largest absolute difference; infinite if the shapes differ."""
    if ours.shape != recorded.shape:
        return Check(f"{what} (shape {list(ours.shape)}, recorded {list(recorded.shape)})", math.inf, tolerance)
    return Check(what, _largest_difference(ours, recorded), tolerance, ours=ours)


def _largest_difference(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b.double()).abs().max())


def count_differences(what: str, ours: Sequence[object], recorded: Sequence[object]) -> Check:
    """The number of differing elements; the tolerance is 0."""
    differing = sum(a != b for a, b in zip(ours, recorded, strict=False)) + abs(len(ours) - len(recorded))
    return Check(what, float(differing), 0.0)
