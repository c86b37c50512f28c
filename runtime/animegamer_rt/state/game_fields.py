"""The game's values by name, as they are sent to clients and written to game.json.

The names are written out here, so that renaming a Python field changes neither messages nor files.
"""

from __future__ import annotations

from typing import Any

from .game import CharacterState, GameState
from .scene import Scene


def game_state_to_fields(state: GameState) -> dict[str, int]:
    """The four strengths of a turn."""
    return {
        "motion_level": state.motion_level,
        "social": state.social,
        "entertainment": state.entertainment,
        "stamina": state.stamina,
    }


def character_to_fields(character: CharacterState) -> dict[str, int]:
    """The three running values of the character."""
    return {
        "stamina": character.stamina,
        "social": character.social,
        "entertainment": character.entertainment,
    }


def scene_to_fields(scene: Scene) -> dict[str, Any]:
    """What a scene shows; clothes only of the people in it."""
    return {
        "people": [{"name": name, "clothes": scene.clothes[name]} for name in scene.people],
        "motion": scene.motion,
        "level": scene.level,
        "place": scene.place,
        "hour": scene.hour,
        "position": scene.position,
        "caption": scene.caption,
    }
