"""The tokens that the published model adds after its tokenizer's pieces, in order. Source: MODEL.md section 2."""

from __future__ import annotations

from animegamer_rt.state.game import STRENGTH_VALUES

_FRAMES = 256


def added_tokens() -> list[str]:
    """256 frames, marks, strengths and state tags; the first id follows the last piece."""
    frames = [f"<frame_{n:05d}>" for n in range(_FRAMES)]
    marks = ["<img>", "</img>", "<vid>", "</vid>", "<frame>", "</frame>"]
    strengths = [f"<Strength_{strength}>" for strength in STRENGTH_VALUES]
    tags = [f"<{slash}{name}>" for name in ("ML", "SC", "ET", "ST", "TURN") for slash in ("", "/")]
    return [*frames, *marks, *strengths, "<visual>", *tags]
