"""The story form becomes a caption, or a clear error."""

from __future__ import annotations

import pytest

from animegamer_rt.errors import InstructionError
from animegamer_rt.state.instruction import Instruction

FULL = "<S>Mia</S><MD>flying on a kite</MD><EV>day sky</EV><ML>4</ML><MA>quickly</MA>"


def test_story_becomes_the_caption() -> None:
    expected = "Character: Mia; Motion: quickly flying on a kite; Background: day sky."
    assert Instruction.parse(FULL).text == expected


def test_order_spaces_and_separators_do_not_matter() -> None:
    shuffled = " <EV>day sky</EV>, <MA> quickly </MA>; <S>Mia</S>\n<MD>flying on a kite</MD> <ML>4</ML>. "
    assert Instruction.parse(shuffled) == Instruction.parse(FULL)


def test_two_subjects_are_joined() -> None:
    assert Instruction.parse("<S>Mia</S><S>Tobo</S><MD>wave</MD>").text == "Character: Mia and Tobo; Motion: wave."


@pytest.mark.parametrize(("level", "adverb"), [("1", "barely"), ("5", "wildly"), ("swiftly", "swiftly")])
def test_motion_level_without_an_adverb_gives_one(level: str, adverb: str) -> None:
    assert Instruction.parse(f"<MD>run</MD><ML>{level}</ML>").text == f"Motion: {adverb} run."


def test_labels_of_the_state_are_the_predictors_to_say() -> None:
    assert Instruction.parse(FULL + "<SC>3</SC><ET>1</ET><ST>-2</ST>") == Instruction.parse(FULL)


@pytest.mark.parametrize("text", ["<MD>run</MD><XY>what</XY>", "<MD>run</MD><WEATHER>rain"])
def test_unknown_tag_is_named_with_the_known_ones(text: str) -> None:
    with pytest.raises(InstructionError, match=r"unknown story tag; found <(XY|WEATHER)>; expected one of <S> <MD>"):
        Instruction.parse(text)


@pytest.mark.parametrize("text", ["<MD>run", "<MD>run</EV>", "<MD>run</MD> and then <EV>sky</EV>"])
def test_broken_story_is_refused(text: str) -> None:
    with pytest.raises(InstructionError, match="malformed|unknown story tag"):
        Instruction.parse(text)


def test_story_without_motion_is_refused() -> None:
    with pytest.raises(InstructionError, match="has no motion"):
        Instruction.parse("<S>Mia</S><EV>day sky</EV>")


def test_repeated_motion_is_refused() -> None:
    with pytest.raises(InstructionError, match=r"<MD> occurs 2 times"):
        Instruction.parse("<MD>run</MD><MD>fly</MD>")


def test_impossible_motion_level_is_refused() -> None:
    with pytest.raises(InstructionError, match="unknown motion level; found 9"):
        Instruction.parse("<MD>run</MD><ML>9</ML>")
