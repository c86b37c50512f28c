"""Plans that take an earlier step's guidance again, each made of another plan.

Knows plans as data; not how near these come.
"""

from __future__ import annotations

from collections.abc import Iterable

from animegamer_rt.bundle.denoise_plan import DenoisePlan


def reuse_variants(plan: DenoisePlan) -> list[DenoisePlan]:
    """The plan with one of its pairs computed no more, for a row less: every pair but the first, one at a time."""
    pairs = [number for number, step in enumerate(plan) if step.branch == "pair"]
    return [_with_reuse(plan, [number]) for number in pairs[1:]]


def extend_guidance(plan: DenoisePlan) -> DenoisePlan | None:
    """The plan with the last pair's guidance in all the unguided steps after it, for nothing; None without any."""
    branches = [step.branch for step in plan]
    last = max((number for number, branch in enumerate(branches) if branch == "pair"), default=len(branches))
    after = [number for number in range(last + 1, len(branches)) if branches[number] == "conditional"]
    return _with_reuse(plan, after) if after else None


def _with_reuse(plan: DenoisePlan, steps: Iterable[int]) -> DenoisePlan:
    data = plan.to_dict()
    for number in steps:
        data["steps"][number]["branch"] = "reuse"
    return DenoisePlan.from_dict(data)
