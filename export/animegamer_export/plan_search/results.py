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


SKIPPING_SUFFIX = "-skipping"
"""Name suffix of a block-skipping plan that costs less than the plan without skips."""


@dataclass(frozen=True, slots=True)
class PlanResult:
    """A measured plan.

    rows: network evaluations. cost: `DenoisePlan.cost`, equal to the rows without skipped blocks. denoise_seconds:
    median per turn on this machine. fidelity: figures of `PlanEvaluator.fidelity`.
    """

    rows: int
    cost: float
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
    def skipped(self) -> str:
        """Which blocks are skipped, in how many steps, as text; empty for none."""
        spans = [step.blocks for step in self.plan if step.blocks is not None and step.blocks.reused]
        return f"blocks {spans[0].first} to {spans[0].last} in {len(spans)} steps" if spans else ""

    @property
    def summary(self) -> str:
        """Network evaluations, steps, skips and cost as text."""
        text = f"{self.rows} network evaluations in {len(self.plan)} steps"
        return f"{text}, skipping {self.skipped}: cost {self.cost:.1f}" if self.skipped else text


def choose_plans(points: Sequence[PlanResult], goals: Mapping[str, float] = GOALS) -> dict[str, PlanResult]:
    """The cheapest plan per goal without skips, and as name + SKIPPING_SUFFIX a cheaper one with skips.

    Raises PlanError with the best SSIM found if no plan without skips reaches a goal.
    """
    chosen = {}
    for name, least in goals.items():
        good = sorted((point for point in points if point.reaches(least)), key=lambda point: point.cost)
        plain = [point for point in good if not point.skipped]
        if not plain:
            best = max((point.ssim for point in points), default=0.0)
            raise PlanError(f"no plan reaches the goal for {name!r}", found=f"SSIM {best}", expected=f"{least} or more")
        chosen[name] = plain[0]
        if good[0].cost < plain[0].cost:
            chosen[name + SKIPPING_SUFFIX] = good[0]
    return chosen
