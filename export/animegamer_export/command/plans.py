"""What a full-size bundle says besides its parts: the plans, how it follows the reference, and whose work it is.

Data only. None of the plans below has been measured at full size: a bundle shows them as "not measured".
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from animegamer_rt.coarse import coarse_plan
from animegamer_rt.manifest import Compatibility, PlanEntry
from animegamer_rt.schedule import even_plan

PLAN_STEPS: Mapping[str, int] = MappingProxyType({"exact": 50, "balanced": 25, "fast": 12})
"""Steps of each plan: the reference's own 50, and fewer of them with the noise and guidance of those they span."""
DEFAULT_PLAN = "balanced"
# Guidance falls to 1 within 1e-5 at two of the 50 steps: those need no unguided row (MODEL.md section 5).
UNGUIDED_BELOW = 1e-5

COMPATIBILITY = Compatibility()
"""The paper's method; `manifest.REFERENCE` is the published demo with its quirks."""

WINDOW_TOKENS = 4096
"""Mistral's sliding window: the longest prompt that every token of it still sees whole."""

LICENCES: Mapping[str, str] = MappingProxyType(
    {
        "checkpoints": "AnimeGamer's own licence (not intended for use within the European Union); "
        "Mistral-7B and CogVideoX-2B: Apache-2.0",
        "random weights": "Apache-2.0",
    }
)


def plan_entries() -> dict[str, PlanEntry]:
    """The manifest's plans."""
    plans = {name: coarse_plan(steps, conditional_below=UNGUIDED_BELOW) for name, steps in PLAN_STEPS.items()}
    plans["exact"] = even_plan(PLAN_STEPS["exact"], conditional_below=UNGUIDED_BELOW)
    return {name: PlanEntry(plan.to_dict(), default=name == DEFAULT_PLAN) for name, plan in plans.items()}
