"""The settings behind `animegamer-rt bench --preset`: named, so that a figure can be cited and repeated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

FULL_SIZE = "bundles/full-random"


@dataclass(frozen=True, slots=True)
class Preset:
    """bundle: name or folder. plans: in this order, none for the bundle's default. turns: measured of each plan.

    made_by: the command that makes the bundle, for one that does not come with the package.
    """

    bundle: str = "pocket"
    plans: tuple[str, ...] = ()
    turns: int = 15
    made_by: str | None = None


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "quick": Preset(turns=3),
        "standard": Preset(plans=("exact", "balanced", "fast")),
        "full-size": Preset(
            FULL_SIZE,
            ("exact", "balanced", "fast"),
            turns=5,
            made_by=f"animegamer-rt export --random-weights 0 --out {FULL_SIZE}",
        ),
    }
)
"""quick: is it about right? standard: README's table. full-size: time and memory at 480 x 720; on a GPU, as a CPU takes
hours a turn."""
