"""Game states, character values and the rules of the game."""

from __future__ import annotations

import pytest

from animegamer_rt.errors import ConfigError
from animegamer_rt.state.game import CharacterState, GameState, motion_scope


def test_strength_out_of_range_is_refused() -> None:
    with pytest.raises(ConfigError, match="social: a strength is out of range; found 6"):
        GameState(motion_level=1, social=6, entertainment=0, stamina=0)


def test_character_moves_by_five_times_the_strength_from_fifty() -> None:
    after = CharacterState().after(GameState(motion_level=5, social=-1, entertainment=2, stamina=-4))
    assert after == CharacterState(stamina=30, social=45, entertainment=60)


def test_character_stays_between_0_and_100() -> None:
    high = CharacterState(stamina=98, social=99, entertainment=97).after(GameState(1, 5, 5, 5))
    low = CharacterState(stamina=2, social=1, entertainment=0).after(GameState(1, -5, -5, -5))
    assert high == CharacterState(100, 100, 100)
    assert low == CharacterState(0, 0, 0)


def test_quiet_turn_shows_five_lower_and_the_drop_does_not_add_up() -> None:
    quiet = GameState(motion_level=1, social=0, entertainment=0, stamina=0)
    character = CharacterState()
    for _ in range(3):
        character = character.after(quiet)
    assert character == CharacterState(50, 50, 50)
    assert character.shown(quiet) == CharacterState(stamina=50, social=45, entertainment=45)
    lively = GameState(motion_level=1, social=1, entertainment=1, stamina=0)
    assert character.shown(lively) == character


def test_shown_value_is_not_below_zero() -> None:
    assert CharacterState(0, 3, 0).shown(GameState(0, 0, 0, 0)) == CharacterState(0, 0, 0)


@pytest.mark.parametrize(
    ("table", "scopes"), [("paper", (40.0, 0.5, 2.5, 10.0, 15.0, 40.0)), ("demo", (40.0, 0.5, 1.0, 5.0, 20.0, 40.0))]
)
def test_motion_table_has_the_published_scopes(table: str, scopes: tuple[float, ...]) -> None:
    assert tuple(motion_scope(GameState(level, 0, 0, 0), table) for level in range(6)) == scopes
    assert motion_scope(GameState(-3, 0, 0, 0), table) == 40.0


def test_motion_source_social_reads_social_instead() -> None:
    game_state = GameState(motion_level=1, social=3, entertainment=0, stamina=0)
    assert motion_scope(game_state, "demo", "social") == 5.0
    assert motion_scope(game_state, "demo", "motion_level") == 0.5
