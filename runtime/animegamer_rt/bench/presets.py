"""The settings behind `animegamer-rt bench run --preset`, named so that a figure can be repeated, and what is timed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from animegamer_rt.bundle.files import user_data_folder

FULL_SIZE = "bundles/full-random"
FORMATS = ("md", "csv", "json", "jsonl", "sql", "quote", "bibtex")
"""What `bench show --format` prints."""
TIMED = (
    "A turn: from the instruction in at the calling program to the last frame out at it, in one process and one stream,"
    " without a server and without encoding video. Stages: predictor (text and history to game state and shot),"
    " denoiser (shot to latents), vae (latents to frames); time between them counts in the turn. Warm-up turns come"
    " first and are not counted. No result is reused: every turn reads its prompt, denoises and decodes anew."
)
ONE_GAME = (
    "All turns are of one game with seed 7 that plays the bundle's example instructions; its history is full, after"
    " history_turns + 1 turns of warm-up."
)
SUITE_GAMES = (
    "Suite 1: 16 games of 12 turns in everyday words, each game with a seed of its own, so that its history grows from"
    " none to full; at least 600 s and at least 64 turns a plan."
)


@dataclass(frozen=True, slots=True)
class Preset:
    """bundle: name or folder. plans: in this order; empty for the bundle's default. turns: timed for each plan.

    made_by: the command that makes the bundle, for one that does not come with the package.
    """

    bundle: str = "pocket"
    plans: tuple[str, ...] = ()
    turns: int = 15
    made_by: str | None = None


QUICK = "quick"
PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        QUICK: Preset(turns=3),
        "standard": Preset(plans=("exact", "balanced", "fast")),
        "full-size": Preset(
            FULL_SIZE,
            ("exact", "balanced", "fast"),
            turns=5,
            made_by=f"animegamer-rt export --random-weights 0 --out {FULL_SIZE}",
        ),
    }
)
"""quick: a look, not a figure to cite. standard: a few minutes. full-size: time and memory at 720 x 480, on a GPU.
A CPU takes hours per turn."""


def results_folder() -> Path:
    """Where records go unless `--results` says otherwise: the user's data folder, outside any checkout."""
    return user_data_folder() / "bench"
