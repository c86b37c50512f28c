"""Derives plans that reuse the guidance of an earlier step."""

from __future__ import annotations

from collections.abc import Iterable

from animegamer_rt.bundle.denoise_plan import DenoisePlan


def reuse_variants(plan: DenoisePlan) -> list[DenoisePlan]:
    """Variants in which a CFG pair after the first reuses the guidance before it: one network evaluation less."""
    pairs = [number for number, step in enumerate(plan) if step.branch == "pair"]
    return [_with_reuse(plan, [number]) for number in pairs[1:]]


def extend_guidance(plan: DenoisePlan) -> DenoisePlan | None:
    """The plan with the last CFG pair's guidance reused in all later steps, at equal cost; None without such steps."""
    branches = [step.branch for step in plan]
    last = max((number for number, branch in enumerate(branches) if branch == "pair"), default=len(branches))
    after = [number for number in range(last + 1, len(branches)) if branches[number] == "conditional"]
    return _with_reuse(plan, after) if after else None


def _with_reuse(plan: DenoisePlan, steps: Iterable[int]) -> DenoisePlan:
    data = plan.to_dict()
    for number in steps:
        data["steps"][number]["branch"] = "reuse"
    return DenoisePlan.from_dict(data)
