"""The settings behind `animegamer-rt bench --preset`, named so that a figure can be cited, and what is timed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

FULL_SIZE = "bundles/full-random"
WHAT_IS_TIMED = """\
what is timed:
  A turn inside one process, from the instruction to the last frame in memory,
  without encoding and without a server. All turns are of one game with seed 7
  that plays the bundle's example instructions. Its history is full:
  history_turns + 1 turns of warm-up come first and are not counted.
  Stages: predictor (text and history to game state and shot), denoiser (shot
  to latents), vae (latents to frames). Time between them counts in the turn.
"""


@dataclass(frozen=True, slots=True)
class Preset:
    """bundle: name or folder. plans: in this order; empty for the bundle's default. turns: timed for each plan.

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
"""quick: a first impression. standard: README's table. full-size: time and memory at 720 x 480, on a GPU.
A CPU takes hours per turn."""
