"""animegamer-rt: plays AnimeGamer turns. An instruction in; the next game state and a 17-frame clip out.

    import animegamer_rt

    with animegamer_rt.open("pocket") as player:
        game = player.start(seed=7)
        clip = game.turn("Tofi waves gently in the meadow.")
        clip.save("turn.mp4")

Importing the package does no work: a public name's module is imported when the name is first used.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

from .version import __version__

if TYPE_CHECKING:
    from .api import Clip, Game, Player, open
    from .bundle.loader import Bundle
    from .engine_config import EngineConfig
    from .errors import (
        AnimeGamerError,
        BackendError,
        BundleError,
        ConfigError,
        InstructionError,
        OutputError,
        PictureError,
        PlanError,
        SessionError,
    )
    from .events import Done, Event, FrameReady, Progress, StageSeconds, StatePredicted, Understood
    from .pipeline import Pipeline
    from .session import Session
    from .state.game import CharacterState, GameState, Instruction, Scene

# onnxruntime reads this when it is imported: without it, it writes a store of telemetry under the home folder.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

__all__ = [
    "AnimeGamerError",
    "BackendError",
    "Bundle",
    "BundleError",
    "CharacterState",
    "Clip",
    "ConfigError",
    "Done",
    "EngineConfig",
    "Event",
    "FrameReady",
    "Game",
    "GameState",
    "Instruction",
    "InstructionError",
    "OutputError",
    "PictureError",
    "Pipeline",
    "PlanError",
    "Player",
    "Progress",
    "Scene",
    "Session",
    "SessionError",
    "StageSeconds",
    "StatePredicted",
    "Understood",
    "__version__",
    "open",
]

_MODULES = (
    *("errors", "state.game", "events", "engine_config"),
    *("bundle.loader", "session", "pipeline", "api"),
)
"""Where the names are looked for, in this order: what imports least comes first."""


def __getattr__(name: str) -> object:
    if name in __all__:
        for module in _MODULES:
            found = importlib.import_module(f".{module}", __name__)
            if hasattr(found, name):
                globals()[name] = value = getattr(found, name)
                return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
