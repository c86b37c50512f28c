"""What an exported bundle says besides its parts: the plans, how it follows the reference, and whose work it is.

Data only. None of the plans below has been measured at full size: a bundle shows them as "not measured", and the
runtime plays none of them but `exact` until they are calibrated.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from animegamer_rt.bundle.coarse_plan import coarse_plan
from animegamer_rt.bundle.denoise_plan import DenoisePlan, even_plan
from animegamer_rt.bundle.manifest import Compatibility, PlanEntry, clear_fidelity

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

# Guidance falls to 1 within 1e-5 at two of the 50 steps: those need no unguided row (schedule.choose_branches).
LOSSLESS_BELOW = 1e-5
# The last steps of a coarse plan are guided by 1.01 to 1.12: one row more for nothing that can be seen.
UNGUIDED_BELOW = 0.2
COARSE_STEPS: Mapping[str, int] = MappingProxyType({"balanced": 18, "fast": 10})


def default_plans() -> dict[str, DenoisePlan]:
    """The reference's fifty steps, and plans that follow their path in fewer, evenly spread."""
    coarse = {name: coarse_plan(steps, conditional_below=UNGUIDED_BELOW) for name, steps in COARSE_STEPS.items()}
    return {"exact": even_plan(50, conditional_below=LOSSLESS_BELOW), **coarse}


def plan_entries(plans: Mapping[str, DenoisePlan]) -> dict[str, PlanEntry]:
    """The manifest's entries of these plans, not measured yet: `animegamer-rt search-plans` replaces them."""
    return clear_fidelity({name: PlanEntry(plan.to_dict()) for name, plan in plans.items()})
