"""The figures of a comparison, and which of them exceed the tolerance of a part's precision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from animegamer_rt.bundle.roles import ENCODER, IMAGE_TOWER, PLAY_ROLES, TEXT_TOWER

PARTS, START_PARTS = PLAY_ROLES, (ENCODER, TEXT_TOWER, IMAGE_TOWER)
"""Parts run in every turn, and parts run only when a game starts from a picture."""


ACTIVATION_TOLERANCES: Mapping[str, float] = {"w8a8": 0.15, "fp8": 0.25}
"""Largest relative error of an output, by precision, where activations are rounded too: three times the error of a step
of pocket in docs/QUANTIZATION.md (0.049, 0.084)."""


Figures = dict[str, Any]


def exceeds_tolerance(
    figures: Mapping[str, Figures], allowed: Mapping[str, float] = ACTIVATION_TOLERANCES
) -> list[str]:
    """One line for each error above what its precision allows; precisions not in `allowed` have no limit."""
    return [
        f"{part}: {name.replace('_', ' ')} {value}, allowed {most}"
        for part, figure in figures.items()
        if (most := allowed.get(figure["precision"])) is not None
        for name, value in figure.items()
        if name.endswith("relative_error") and not value <= most
    ]
