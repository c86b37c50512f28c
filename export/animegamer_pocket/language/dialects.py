"""Rewrites a text in a dialect."""

from __future__ import annotations

import random
import re
from pathlib import Path

_OPENINGS = {
    "scots": ("Och", "Och aye", "Right, hen", "Och no", "Haud on"),
    "pirate": ("Arr", "Ahoy", "Yo ho", "Avast", "Arr matey"),
    "bard": ("Hark", "Lo", "Behold", "Alas", "O"),
    "cockney": ("Oi", "Blimey", "Cor", "'Ere", "Right"),
    "southern": ("Well", "Well shucks", "Howdy", "Dang", "Alrighty"),
    "toddler": ("Again", "Look", "Mummy look", "No", "Yay"),
}


_DIALECTS = {
    name: dict(pair.split(": ") for pair in " ".join(text.split()).split(", "))
    for name, text in re.findall(r"\[(\w+)\]\n([^\[]+)", Path(__file__).with_suffix(".txt").read_text(encoding="utf-8"))
}
"""Each dialect's words, by plain word."""
DIALECTS = tuple(_DIALECTS)


def spoken(rng: random.Random, text: str, dialect: str) -> str:
    """The text in a dialect: its words, -in' for -ing, sometimes an opening word."""
    for plain, own in _DIALECTS[dialect].items():
        if rng.random() < 0.7:
            text = re.sub(rf"\b{plain}\b", own, text, flags=re.IGNORECASE)
    if dialect not in ("bard", "toddler") and rng.random() < 0.8:
        text = re.sub(r"(?<=[a-z]{2})ing\b", "in'", text)
    if dialect == "bard" and rng.random() < 0.5:
        text = re.sub(
            r"\b(walk|jump|sleep|run|dance|wave|fli|sit|bow|join|leave|come|wear|put|take|go)e?s\b", r"\1eth", text
        )
    if rng.random() < 0.3:
        text = f"{rng.choice(_OPENINGS[dialect])}, {text}"
    return text
