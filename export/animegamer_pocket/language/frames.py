"""Sentence frames: lines of the files in `frames/`, one file per voice, with sections `== name`.

A slot is `{name}`; `<sings|sing>` agrees with the noun phrase before it; `(a|b|)` stands for each alternative. Tags at
the end restrict where a frame fits: @day @night @one @pair @indoors @outdoors. A frame with @day or @night also
expresses the hour.
"""

from __future__ import annotations

import dataclasses
import functools
import random
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .lexicon import expand, sections
from .voices import Voice

FOLDER = Path(__file__).parent / "frames"

_DRAWS = 8
_SLOT = re.compile(r"\{([^{}]+)\}")


@dataclasses.dataclass(frozen=True, slots=True)
class Frame:
    """One frame: its text, the names of its slots and its tags."""

    text: str
    slots: frozenset[str]
    tags: frozenset[str]


@functools.cache
def load_frames(voice: str) -> Mapping[str, tuple[Frame, ...]]:
    """The sections of a voice's file; empty without a file."""
    path = FOLDER / f"{voice}.txt"
    lines = sections(path) if path.exists() else {}
    return {name: tuple(_frame(text) for line in found for text in expand(line)) for name, found in lines.items()}


def _frame(text: str) -> Frame:
    words = text.split(" ")
    tags = frozenset(word[1:] for word in words if re.fullmatch("@[a-z]+", word))
    text = " ".join(word for word in words if word[1:] not in tags or word[0] != "@")
    return Frame(text, frozenset(_SLOT.findall(text)), tags)


def choose(rng: random.Random, voice: Voice, section: str, fits: Callable[[Frame], bool]) -> Frame | None:
    """A random fitting frame of a section, from the voice's own file or plain.txt; None if there is none."""
    own = load_frames(voice.name).get(section, ())
    common = () if voice.only_own else load_frames("plain").get(section, ())
    for frames in (own, common) if rng.random() < voice.own else (common, own):
        found = _draw(rng, frames, fits)
        if found is not None:
            return found
    return None


def _draw(rng: random.Random, frames: Sequence[Frame], fits: Callable[[Frame], bool]) -> Frame | None:
    """A random fitting frame. A few draws usually find one faster than checking every frame."""
    for _ in range(_DRAWS if frames else 0):
        frame = rng.choice(frames)
        if fits(frame):
            return frame
    fitting = [frame for frame in frames if fits(frame)]
    return rng.choice(fitting) if fitting else None
