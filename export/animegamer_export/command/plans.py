"""What an exported bundle says besides its parts: the plans, how it follows the reference, and whose work it is.

Data only. None of the plans below has been measured at full size: a bundle shows them as "not measured", and the
runtime plays none of them but `exact` until they are calibrated.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from animegamer_export.pocket.bundle import default_plans
from animegamer_rt.manifest import Compatibility, PlanEntry, unmeasured

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
    """The manifest's plans: evenly spread ones, for `animegamer-rt calibrate` to replace."""
    return unmeasured({name: PlanEntry(plan.to_dict()) for name, plan in default_plans().items()})
