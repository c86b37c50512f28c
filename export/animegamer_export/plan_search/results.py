"""Measured plans, and the choice of the cheapest that reach the goals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from animegamer_rt.bundle.denoise_plan import DenoisePlan
from animegamer_rt.errors import PlanError

GOALS: Mapping[str, float] = MappingProxyType({"balanced": 0.97, "fast": 0.87})
"""Required SSIM against `exact`: 0.95 and 0.85, plus a margin of 0.02 for unmeasured turns."""


@dataclass(frozen=True, slots=True)
class PlanResult:
    """A measured plan.

    rows: network evaluations. denoise_seconds: median per turn on this machine. fidelity: figures of
    `PlanEvaluator.fidelity`.
    """

    rows: int
    plan: DenoisePlan
    denoise_seconds: float
    fidelity: Mapping[str, Any]

    @property
    def ssim(self) -> float:
        """Mean SSIM of the frames against `exact`."""
        return float(self.fidelity["ssim"])

    def reaches(self, ssim: float) -> bool:
        """Whether the SSIM is high enough and the instruction score, if measured, is at least that of `exact`."""
        score, exact = (self.fidelity.get(f"instruction_score{whose}") for whose in ("", "_exact"))
        return self.ssim >= ssim and (score is None or exact is None or float(score) >= float(exact))

    @property
    def summary(self) -> str:
        """Network evaluations and steps as text."""
        return f"{self.rows} network evaluations in {len(self.plan)} steps"


def choose_plans(points: Sequence[PlanResult], goals: Mapping[str, float] = GOALS) -> dict[str, PlanResult]:
    """The cheapest plan per goal. Raises PlanError with the best SSIM found if no plan reaches a goal."""
    chosen = {}
    for name, least in goals.items():
        good = [point for point in points if point.reaches(least)]
        if not good:
            best = max((point.ssim for point in points), default=0.0)
            raise PlanError(f"no plan reaches the goal for {name!r}", found=f"SSIM {best}", expected=f"{least} or more")
        chosen[name] = min(good, key=lambda point: point.rows)
    return chosen
