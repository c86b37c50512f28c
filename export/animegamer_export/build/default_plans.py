"""Default contents of an exported manifest: plans, compatibility with the reference, and licences.

None of the coarse plans has been measured at full size: a bundle shows them as "not measured", and the runtime plays
only `exact` until `animegamer-rt search-plans` has measured others.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from animegamer_export.support.plans import clear_fidelity, coarse_plan, exact_plan
from animegamer_rt.bundle.denoise_plan import DenoisePlan
from animegamer_rt.bundle.manifest import Compatibility, PlanEntry

COMPATIBILITY = Compatibility()
"""The paper's method; `manifest.REFERENCE` is the published demo with its quirks."""

WINDOW_TOKENS = 4096
"""Mistral's sliding window: the longest prompt in which every token attends to all earlier ones."""

LICENCES: Mapping[str, str] = MappingProxyType(
    {
        "checkpoints": "AnimeGamer's own licence (not intended for use within the European Union); "
        "Mistral-7B and CogVideoX-2B: Apache-2.0",
        "random weights": "Apache-2.0",
    }
)

# Guidance is within 1e-5 of 1 in two of the 50 steps, so they need no unconditional row.
LOSSLESS_BELOW = 1e-5
# Guidance in a coarse plan's last steps is 1.01 to 1.12: the unconditional row would change nothing visible.
UNGUIDED_BELOW = 0.2
COARSE_STEPS: Mapping[str, int] = MappingProxyType({"balanced": 18, "fast": 10})


def default_plans() -> dict[str, DenoisePlan]:
    """The reference's fifty steps, and coarser plans with evenly spaced steps."""
    coarse = {name: coarse_plan(steps, conditional_below=UNGUIDED_BELOW) for name, steps in COARSE_STEPS.items()}
    return {"exact": exact_plan(conditional_below=LOSSLESS_BELOW), **coarse}


def plan_entries(plans: Mapping[str, DenoisePlan]) -> dict[str, PlanEntry]:
    """Manifest entries of unmeasured plans; `animegamer-rt search-plans` replaces them."""
    return clear_fidelity({name: PlanEntry(plan.to_dict()) for name, plan in plans.items()})
