"""The tokens that the published model adds after its tokenizer's pieces, in order. Source: MODEL.md section 2."""

from __future__ import annotations

_FRAMES = 256
_STATE_TAGS = ("ML", "SC", "ET", "ST", "TURN")


def added_tokens() -> list[str]:
    """256 frames, marks, strengths and state tags; the first has the id after the last piece."""
    frames = [f"<frame_{n:05d}>" for n in range(_FRAMES)]
    marks = ["<img>", "</img>", "<vid>", "</vid>", "<frame>", "</frame>"]
    strengths = [f"<Strength_{strength}>" for strength in range(-5, 6)]
    tags = [f"<{slash}{tag}>" for tag in _STATE_TAGS for slash in ("", "/")]
    return [*frames, *marks, *strengths, "<visual>", *tags]
