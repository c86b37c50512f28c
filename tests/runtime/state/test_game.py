"""Game states, character values, the rules of the game, and what is accepted as an instruction."""

from __future__ import annotations

import pytest

from animegamer_rt.errors import ConfigError, InstructionError
from animegamer_rt.state.game import MAX_INSTRUCTION_CHARACTERS, CharacterState, GameState, Instruction, motion_scope


def test_strength_out_of_range_is_refused() -> None:
    with pytest.raises(ConfigError, match="social: a strength is out of range; found 6"):
        GameState(motion_level=1, social=6, entertainment=0, stamina=0)


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


@pytest.mark.parametrize("raw", ["", "\t\n  \r\n", " - ; , ", "\u200b"])
def test_instruction_without_words_is_refused(raw: str) -> None:
    with pytest.raises(InstructionError, match="empty"):
        Instruction.parse(raw)


def test_a_hundred_megabytes_are_refused_without_being_read() -> None:
    with pytest.raises(InstructionError, match="too long"):
        Instruction.parse("ab " * 33_000_000)


def test_longest_instruction_is_accepted_and_one_more_is_not() -> None:
    assert len(Instruction.parse("a" * MAX_INSTRUCTION_CHARACTERS).text) == MAX_INSTRUCTION_CHARACTERS
    with pytest.raises(InstructionError, match="found 501 characters"):
        Instruction.parse("a" * (MAX_INSTRUCTION_CHARACTERS + 1))


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        ("Mia\x00waves", "control character; found U+0000"),
        ("Mia \x1b[2J waves", "control character; found U+001B"),
        ("Mia \u202eoops", "an invisible mark; found U+202E"),
        ("a\ud800b", "control character; found U+D800"),
        ("Mi\udce9", "not UTF-8 text; found byte 0xe9"),
    ],
)
def test_what_is_no_plain_text_is_refused_and_named(raw: str, named: str) -> None:
    with pytest.raises(InstructionError) as caught:
        Instruction.parse(raw)
    assert named in str(caught.value)


def test_instruction_in_any_script_is_accepted_as_it_is() -> None:
    for raw in ("ミアは空を飛ぶ", "Мия бежит по городу", "ميا تجري", "미아가 손을 흔든다", "Mia 🎏"):
        assert Instruction.parse(raw).text == raw


def test_text_is_composed_and_spaces_are_single() -> None:
    assert Instruction.parse("  Cafe\u0301 \t of\nMia ").text == "Caf\u00e9 of Mia"
