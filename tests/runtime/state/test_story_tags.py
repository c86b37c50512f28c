"""The story form becomes a caption, or a clear error."""

from __future__ import annotations

import pytest

from animegamer_rt.errors import InstructionError
from animegamer_rt.state.instruction import Instruction

FULL = "<S>Mia</S><MD>flying on a kite</MD><EV>day sky</EV><ML>4</ML><MA>quickly</MA>"
CAPTION = "Character: Mia; Motion: quickly flying on a kite; Background: day sky."
ACCEPTED = {
    FULL: CAPTION,
    # Order, spaces, separators and the labels of the state change nothing.
    " <EV>day sky</EV>, <MA> quickly </MA>; <S>Mia</S>\n<MD>flying on a kite</MD> <ML>4</ML>. ": CAPTION,
    FULL + "<SC>3</SC><ET>1</ET><ST>-2</ST>": CAPTION,
    "<S>Mia</S><S>Tobo</S><MD>wave</MD>": "Character: Mia and Tobo; Motion: wave.",
    "<MD>run</MD><ML>1</ML>": "Motion: barely run.",
    "<MD>run</MD><ML>swiftly</ML>": "Motion: swiftly run.",
}
REFUSED = {
    "<MD>run</MD><XY>what</XY>": "unknown story tag; found <XY>; expected one of <S> <MD>",
    "<MD>run": "malformed",
    "<MD>run</EV>": "malformed",
    "<MD>run</MD> and then <EV>sky</EV>": "malformed",
    "<S>Mia</S><EV>day sky</EV>": "has no motion",
    "<MD>run</MD><MD>fly</MD>": "<MD> occurs 2 times",
    "<MD>run</MD><ML>9</ML>": "unknown motion level; found 9",
}


@pytest.mark.parametrize(("story", "caption"), ACCEPTED.items())
def test_a_story_becomes_a_caption(story: str, caption: str) -> None:
    assert Instruction.parse(story).text == caption


@pytest.mark.parametrize(("story", "said"), REFUSED.items())
def test_a_story_that_cannot_be_played_is_refused(story: str, said: str) -> None:
    with pytest.raises(InstructionError, match=said):
        Instruction.parse(story)
