"""Measured plans, and which of them a bundle gets: the cheapest that reach the goals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from animegamer_rt.bundle.denoise_plan import DenoisePlan
from animegamer_rt.errors import PlanError

GOALS: Mapping[str, float] = MappingProxyType({"balanced": 0.97, "fast": 0.87})
"""The SSIM against exact that a plan of this name has to reach: 0.95 and 0.85, and 0.02 for turns not measured."""


SKIPPING_SUFFIX = "-skipping"
"""Ends the name of a plan that skips blocks and costs less than the one without, which every engine plays."""


@dataclass(frozen=True, slots=True)
class PlanResult:
    """One plan of the curve: its network rows and their cost, the median seconds of its denoising here, its figures.

    cost: `DenoisePlan.cost`, as many as its rows if it skips no blocks.
    """

    rows: int
    cost: float
    plan: DenoisePlan
    denoise_seconds: float
    fidelity: Mapping[str, Any]

    @property
    def ssim(self) -> float:
        """Of its frames against the exact plan's."""
        return float(self.fidelity["ssim"])

    def reaches(self, ssim: float) -> bool:
        """Whether it is so near to exact, and follows instructions no worse, where a judge said how well."""
        score, exact = (self.fidelity.get(f"instruction_score{whose}") for whose in ("", "_exact"))
        return self.ssim >= ssim and (score is None or exact is None or float(score) >= float(exact))

    @property
    def skipped(self) -> str:
        """Which blocks it skips, and where; empty for none."""
        spans = [step.blocks for step in self.plan if step.blocks is not None and step.blocks.reused]
        return f"blocks {spans[0].first} to {spans[0].last} in {len(spans)} steps" if spans else ""

    @property
    def words(self) -> str:
        """What it plays and costs."""
        said = f"{self.rows} rows in {len(self.plan)} steps"
        return f"{said}, skipping {self.skipped}: the cost of {self.cost:.1f} rows" if self.skipped else said


def choose_plans(points: Sequence[PlanResult], goals: Mapping[str, float] = GOALS) -> dict[str, PlanResult]:
    """The cheapest point that reaches each goal and skips no blocks; as its name + SKIPPING a cheaper one that does.

    Where a judge was turns, its clips show no less of what was turns than those of exact. Raises PlanError, naming the
    best there is, where no point without skips reaches a goal.
    """
    chosen = {}
    for name, least in goals.items():
        good = sorted((point for point in points if point.reaches(least)), key=lambda point: point.cost)
        plain = [point for point in good if not point.skipped]
        if not plain:
            best = max((point.ssim for point in points), default=0.0)
            raise PlanError(f"no plan is near enough for {name!r}", found=f"SSIM {best}", expected=f"{least} or more")
        chosen[name] = plain[0]
        if good[0].cost < plain[0].cost:
            chosen[name + SKIPPING_SUFFIX] = good[0]
    return chosen
