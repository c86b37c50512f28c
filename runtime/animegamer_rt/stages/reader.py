"""Instruction and the scene so far -> the new scene: everyday words become a caption that the predictor knows.

Knows words, scenes and the reader's engine; nothing of prompts or of the predictor. What the instruction leaves out
stays as it was, and clothes stay with the people who are away.
"""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from animegamer_rt.backends.interface import FloatArray, IntArray, PictureReaderEngine, ReaderEngine, ReaderLogits
from animegamer_rt.bundle.manifest import ReaderWords
from animegamer_rt.errors import BackendError
from animegamer_rt.state.instruction import Instruction
from animegamer_rt.state.scene import HOURS, LEVELS, Scene, left_last, third_person

from .image import Picture, prepare
from .instruction_words import GRAMS, MAX_WORDS, split_words, word_features

ABSENT, FIRST, SECOND = range(3)
"""What the output `people`, and the input `scene`, say of a person."""

_LETTERS = re.compile("[a-z]")


@dataclass(frozen=True, slots=True)
class Reading:
    """How an instruction was understood.

    unknown: the words that ask for what the bundle cannot draw, in lower case. text: the scene in one line for people.
    notice: a line about what was not understood; None if all was. seconds: inside the engine.
    """

    scene: Scene
    unknown: tuple[str, ...]
    text: str
    notice: str | None
    seconds: float = 0.0


class InstructionReader:
    """One bundle's readers and their words. name: the bundle's, for the notices. Keeps nothing between turns.

    pictures: reads what a picture shows; None in a bundle without that part.
    """

    def __init__(
        self, engine: ReaderEngine, pictures: PictureReaderEngine | None, words: ReaderWords, name: str
    ) -> None:
        self._engine, self._pictures, self._words, self._name = engine, pictures, words, name

    def read(self, instruction: Instruction, before: Scene | None) -> Reading:
        """The scene that an instruction asks for after the scene `before` (None: nothing has been shown yet).

        A text without a Latin letter or an emoji, such as one in another script, leaves the scene as it was.
        Raises BackendError where the engine fails.
        """
        words = split_words(instruction.text)
        readable = any(_LETTERS.search(word) or unicodedata.category(word[0])[0] == "S" for word in words)
        if not readable and before is not None:
            return Reading(before, (), self.describe(before), self._notice((), readable, len(words)))
        features = word_features(words)[None] if readable else np.zeros((1, 1, GRAMS), np.int64)
        encoded, started = self._encode(before), time.perf_counter()
        logits = self._engine.read(features, encoded)
        seconds, scene = time.perf_counter() - started, self._decode(logits, before)
        asked = [word for word, logit in zip(words, logits.unknown, strict=False) if readable and logit > 0]
        unknown = tuple(dict.fromkeys(asked))
        notice = self._notice(unknown, readable, len(words))
        return Reading(scene, unknown, self.describe(scene), notice, seconds)

    def read_image(self, picture: Picture, instruction: Instruction) -> Scene | None:
        """The scene of a picture in which `instruction` happens; None if nobody is seen, or without a picture reader.

        picture: u8 [H, W, 3]. Raises BackendError where an engine fails.
        """
        if self._pictures is None:
            return None
        height, width = self._pictures.height, self._pictures.width
        logits = self._pictures.read(prepare(picture, height, width, width / height))
        if not _who(logits.people, nobody=True):
            return None
        return self.read(instruction, self._decode(logits, None)).scene

    def nobody_seen(self, notice: str | None) -> str | None:
        """The notice of a turn after a picture of which `read_image` gave no scene, before its own `notice`."""
        if self._pictures is None:
            return notice
        seen = f"the picture shows nobody whom {self._name} knows: {', '.join(self._words.people)}"
        return seen if notice is None else f"{seen}; {notice}"

    def _encode(self, scene: Scene | None) -> IntArray:
        """The engine's input i64 [1, P + 5]: a number for each person, then motion, level, place, hour, position.

        A part that takes 2 P + 5 numbers is also told of each person whether it left last: 0 or 1.
        """
        words, told = self._words, self._engine.scene_numbers > len(self._words.people) + 5
        if scene is None:
            nothing = (len(words.motions), len(LEVELS), len(words.places), len(HOURS), len(words.positions))
            stayed = [0] * len(words.people) if told else []
            return np.array([[*[0] * len(words.people), *nothing, *stayed]], np.int64)
        people = []
        for name in words.people:
            presence = scene.people.index(name) + FIRST if name in scene.people else ABSENT
            people.append(presence * len(words.clothes) + words.clothes.index(scene.clothes[name]))
        rest = (
            words.motions.index(scene.motion),
            LEVELS.index(scene.level),
            words.places.index(scene.place),
            HOURS.index(scene.hour),
            words.positions.index(scene.position),
        )
        left = [int(name in scene.left) for name in words.people] if told else []
        return np.array([[*people, *rest, *left]], np.int64)

    def _decode(self, logits: ReaderLogits, before: Scene | None) -> Scene:
        words = self._words
        people = tuple(words.people[person] for person in _who(logits.people))
        worn = before.clothes if before is not None else dict.fromkeys(words.people, words.clothes[0])
        asked = {name: words.clothes[_best(row)] for name, row in zip(words.people, logits.clothes, strict=True)}
        clothes = {name: asked[name] if name in people else worn[name] for name in words.people}
        motion, level = words.motions[_best(logits.motion)], LEVELS[_best(logits.level)]
        place, hour = words.places[_best(logits.place)], HOURS[_best(logits.night)]
        position = words.positions[_best(logits.position)]
        caption = (
            f"Character: {self._dressed(people, clothes)} {words.position_words[words.positions.index(position)]}; "
            f"Motion: {words.manners[LEVELS.index(level)]} {motion}; Background: {hour} {place}."
        )
        left = left_last(before.people, before.left, people) if before is not None else ()
        return Scene(people, clothes, motion, level, place, hour, position, caption, left)

    def _dressed(self, people: Sequence[str], clothes: Mapping[str, str]) -> str:
        """Tofi in everyday clothes and Mirel in a raincoat."""
        kinds = self._words.clothes
        return " and ".join(f"{name} in {self._words.clothes_words[kinds.index(clothes[name])]}" for name in people)

    def describe(self, scene: Scene) -> str:
        """Tofi in a raincoat runs wildly, city, night."""
        motion = scene.motion if len(scene.people) > 1 else third_person(scene.motion)
        manner = self._words.manners[LEVELS.index(scene.level)]
        return f"{self._dressed(scene.people, scene.clothes)} {motion} {manner}, {scene.place}, {scene.hour}"

    def _notice(self, unknown: tuple[str, ...], readable: bool, count: int) -> str | None:
        words, parts = self._words, []
        if not readable:
            parts.append("nothing understood")
        elif unknown:
            parts.append("not understood: " + ", ".join(f'"{word}"' for word in unknown))
        if parts:
            known = "; ".join(", ".join(names) for names in (words.people, words.motions, words.places))
            parts.append(f"{self._name} reads English and knows {known}")
        if count == MAX_WORDS:
            parts.append(f"only the first {MAX_WORDS} words are read")
        return "; ".join(parts) or None


def _who(logits: FloatArray, nobody: bool = False) -> tuple[int, ...]:
    """The likeliest choice of one person named first and at most one named second; logits [P, 3].

    nobody: it may also be that nobody is there.
    """
    shifted = logits - logits.max(-1, keepdims=True)
    chances = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    if not np.isfinite(chances).all():
        raise BackendError("the reader's logits are not numbers", do="run: animegamer-rt selftest")
    # Against everybody being absent.
    first, second = chances[:, FIRST] - chances[:, ABSENT], chances[:, SECOND] - chances[:, ABSENT]
    everybody = range(len(logits))
    choices = [(one,) for one in everybody] + [(one, two) for one in everybody for two in everybody if one != two]
    best = max(choices, key=lambda who: first[who[0]] + sum(second[other] for other in who[1:]))
    return () if nobody and first[best[0]] + sum(second[other] for other in best[1:]) < 0 else best


def _best(logits: FloatArray) -> int:
    if not np.isfinite(logits).all():
        raise BackendError("the reader's logits are not numbers", do="run: animegamer-rt selftest")
    return int(np.argmax(logits))
