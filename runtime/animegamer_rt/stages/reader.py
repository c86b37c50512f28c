"""Instruction and the scene so far -> the new scene: everyday words become a caption that the predictor knows.

Knows words, scenes and the reader's engine; nothing of prompts or of the predictor. What the instruction leaves out
stays as it was, and clothes stay with the people who are away.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations
from typing import TypeVar

import numpy as np

from animegamer_rt.backends.interface import FloatArray, IntArray, PictureReaderEngine, ReaderEngine, ReaderLogits
from animegamer_rt.bundle.manifest import ReaderWords
from animegamer_rt.errors import BackendError
from animegamer_rt.state.instruction import Instruction
from animegamer_rt.state.scene import HOURS, LEVELS, Scene, left_last, third_person

from .image import Picture, prepare
from .instruction_words import (
    GRAMS,
    MAX_WORDS,
    is_emoji,
    is_word,
    split_words,
    with_contractions_spelt_out,
    with_corrections,
    with_letters_in_order,
    word_features,
)

Value = TypeVar("Value")

ABSENT, FIRST, SECOND = range(3)
"""What the output `people`, and the input `scene`, say of a person."""

DOUBT = 2.0
"""How much likelier (difference of logits) another place, hour or clothes must be than those of the scene before.

A wrong change of them stays in the game. None of the 803 turns that this was chosen with needs less.
"""

MANY_STRANGE = 3
"""So many different words that the part met in no text are named in the notice, also beside many that it knows."""

MOST_NAMED = 5
"""So many words are named in a notice; it counts the others."""

SURE = 12.0
"""How much likelier (difference of logits) one person must be than all others for a word that names somebody.

Each by itself, "fox", "lad" and "mage" lead by 20 and more; "cat", "king" and "witch" by 7 to 14.
"""

CLEAR = 2.0
"""How much likelier some clothes must be for a word that names them: "gown" and "mac" do, "jacket" does not."""

_ARTICLES = frozenset(("a", "an", "the"))
_COMPANY = re.compile(
    r"(?<!not )(?<!away )(?<!done )\b(?:after|alongside|at|behind|beside|near|to|with) (?:\S+ ){0,3}?(\S+)"
    r"(?= (?:across|again|along|alongside|and|around|as|at|behind|beside|by|for|from|he|in|inside|is|it|near|now|on"
    r"|outside|over|she|then|they|through|to|today|tonight|too|under|until|while|who|with|without|\w+ly)\b| \W|$)"
)
"""The last word of who or what is there as well: "the fox runs with the old robot in the rain"."""
_ONE_TOO = re.compile(
    r"\b(?:dons?|gets?|got|has|have|having|in|into|needs?|puts?|putting|wants?|wears?|wearing) (?:hers|his|one|theirs)"
    r"(?= (?:again|also|and|as|beside|likewise|near|next|now|on|too)\b| \W|$)"
)
"""Clothes that are not named again: "he puts his on too", "and Mirel in hers"."""
_TAKEN_OFF = re.compile(
    r"\b(?:pulls?|takes?|taking|took) (?:hers|his|it|one|theirs) off\b"
    r"|\b(?:does not|doesn't|don't|no longer) needs? (?:hers|his|it|one)\b"
)
"""Clothes that come off and are not named again."""
_UNDRESSED = re.compile(
    r"\b(?:casual|everyday|nae|no|nor|normal|not|off|ordinary|out|plain|regular|usual|weekday|without)\b"
)
"""Words beside which clothes that are named may be those that are not worn."""
_MANY = re.compile(
    r"\b(?:three|four|five|six|seven|eight|nine|ten|dozens?|hundreds?|thousands?|[3-9]|\d\d+) (?:a |of )?"
    r"(?!(?:times|seconds|minutes|hours|days|steps|paces|yards|met(?:er|re)s|miles|laps|rounds|jumps|hops|leaps|turns"
    r"|spins|twirls|waves|bows)\b)(?:them|us|you|\w\w+s)\b"
)
"""A number of what could be people: "three foxes", but not "three times" or "five jumps"."""
_GO_ON = re.compile(r"\b(?:again|continue|encore|keep|more|same|stay|still|(?:go|carry|play) on)\b")


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
        self._vocabulary, self._undrawable = frozenset(words.vocabulary.split()), frozenset(words.undrawable.split())

    def read(self, instruction: Instruction, before: Scene | None) -> Reading:
        """The scene that an instruction asks for after the scene `before` (None: nothing has been shown yet).

        A text without a Latin letter or an emoji, or mostly of words that no text had which the part learned from, such
        as one in another language, leaves the scene as it was. Raises BackendError where the engine fails.
        """
        words = with_contractions_spelt_out(with_corrections(split_words(instruction.text)), self._vocabulary)
        readable = sum(is_word(word) for word in words)
        ordered = with_letters_in_order(words, self._vocabulary) if readable else []
        pairs = list(zip(words, ordered, strict=False))
        strange = [word for word, learned in pairs if self._is_strange(learned)]
        foreign = len(set(strange)) >= MANY_STRANGE and len(strange) > readable / 2
        if before is not None and (not readable or foreign):
            return Reading(before, (), self.describe(before), self._notice(["nothing understood"], words))
        told = [(word, learned) for word, learned in pairs if not self._is_noise(learned)]
        features = word_features([learned for _, learned in told])[None] if told else np.zeros((1, 1, GRAMS), np.int64)
        encoded, started = self._encode(before), time.perf_counter()
        logits = self._engine.read(features, encoded)
        company = [self._named(found[1]) for found in _COMPANY.finditer(" ".join(ordered))]

        unknown = [word for (word, _), mark in zip(told, logits.unknown, strict=False) if mark > 0]
        unknown += [word for word, learned in pairs if learned in self._undrawable]
        if len(strange) > max(1, readable / 2) or len(set(strange)) >= MANY_STRANGE:
            unknown += strange
        scene = self._decode(
            logits, before, doubtful=bool(unknown), company=[name for name in company if name], text=ordered
        )
        seconds = time.perf_counter() - started
        unchanged = before is not None and scene.shows_the_same(before) and not _goes_on(words, scene)
        if unchanged and not unknown:
            unknown = strange
        named = tuple(dict.fromkeys(word for word in unknown if is_word(word) and word not in _ARTICLES))
        problems = [] if readable else ["nothing understood"]
        if named:
            more = [f"and {len(named) - MOST_NAMED} more"] if len(named) > MOST_NAMED else []
            problems.append("not understood: " + ", ".join([f'"{word}"' for word in named[:MOST_NAMED]] + more))
        elif unknown:
            problems.append("not all understood")
        elif unchanged:
            problems.append("nothing changes")
        elif readable and before is None and _says_nothing(logits):
            problems.append("not understood who does what")
        left_out = self._left_out(words, scene, before)
        if left_out:
            problems.append(f"a picture has room for two, so {' and '.join(left_out)} is left out")
        elif _MANY.search(" ".join(words)):
            problems.append("a picture has room for two, one of each")
        return Reading(scene, named, self.describe(scene), self._notice(problems, words), seconds)

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

    def _named(self, word: str) -> str | None:
        """Whom the word by itself names, such as Tofi for "fox"; None for any other word."""
        if self._is_strange(word) or self._is_noise(word):
            return None
        logits = self._engine.read(word_features([word])[None], self._encode(None))
        scores = logits.people[:, FIRST] - logits.people[:, ABSENT]
        clear = _lead(scores) > SURE and logits.unknown[0] <= 0
        return self._words.people[int(np.argmax(scores))] if clear else None

    def _put_on(
        self, text: Sequence[str], people: Sequence[str], worn: Mapping[str, str], before: Scene
    ) -> dict[str, str]:
        """What one of `people` wears by the text's words alone, where the part changed nobody's clothes.

        What somebody shown before wears ("he gets one too"), everyday clothes ("takes hers off"), or what the words
        name, by who has just come.
        """
        plain, spoken = self._words.clothes[0], " ".join(text)
        if any(worn[name] != before.clothes[name] for name in people):
            return {}
        bare = [name for name in people if worn[name] == plain]
        if _TAKEN_OFF.search(spoken):
            dressed = set(people) - set(bare)
            who = dressed & set(map(self._named, text)) or dressed
            return {who.pop(): plain} if len(who) == 1 else {}
        if _UNDRESSED.search(spoken):
            return {}
        if _ONE_TOO.search(spoken):
            kinds = {before.clothes[name] for name in before.people} - {plain}
            return {bare[0]: kinds.pop()} if len(bare) == len(kinds) == 1 else {}
        come = [name for name in bare if name not in before.people]
        if len(come) != 1 or any(name not in (None, come[0]) for name in map(self._named, text)):
            return {}
        nouns = [word for article, word in pairwise(text) if article != "the"]
        kinds = {kind for word in nouns if (kind := self._clothes_of(word)) is not None}
        return {come[0]: kinds.pop()} if len(kinds) == 1 else {}

    def _clothes_of(self, word: str) -> str | None:
        """Which clothes the word by itself names, such as party clothes for "gown"; None for any other word."""
        if self._is_strange(word) or self._is_noise(word):
            return None
        asked = (["wears", "a", word], ["wears", word, "clothes"])
        read = [self._engine.read(word_features(one)[None], self._encode(None)).clothes.mean(axis=0) for one in asked]
        best = {int(np.argmax(logits)) if _lead(logits) > CLEAR else 0 for logits in read}
        return self._words.clothes[best.pop()] if len(best) == 1 and best != {0} else None

    def _decode(
        self,
        logits: ReaderLogits,
        before: Scene | None,
        doubtful: bool = False,
        company: Sequence[str] = (),
        text: Sequence[str] = (),
    ) -> Scene:
        """The scene of the logits. Place, hour and clothes stay unless others are likelier by DOUBT.

        doubtful: not all words were understood, so that motion stays as well, and people unless twice as clear.
        company: whom the text names as somebody's company; the first who was not there before joins one shown alone.
        """
        words = self._words
        earlier = before if doubtful else None
        shown = [] if earlier is None else [words.people.index(name) for name in earlier.people]
        people = tuple(words.people[person] for person in _who(logits.people, shown))
        there = {*people, *(before.people if before is not None else ())}
        if len(people) == 1:
            people += tuple(name for name in company if name not in there)[:1]
        worn = before.clothes if before is not None else {}
        each = zip(words.people, logits.clothes, strict=True)
        asked = {name: _best(words.clothes, row, worn.get(name)) for name, row in each}
        clothes = {name: asked[name] if name in people else worn.get(name, words.clothes[0]) for name in words.people}
        if before is not None:
            clothes |= self._put_on(text, people, clothes, before)
        place = _best(words.places, logits.place, None if before is None else before.place)
        hour = _best(HOURS, logits.night, None if before is None else before.hour)
        motion = _best(words.motions, logits.motion, None if earlier is None else earlier.motion)
        level = _best(LEVELS, logits.level, None if earlier is None else earlier.level)
        position = _best(words.positions, logits.position)
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

    def _is_strange(self, word: str) -> bool:
        """Whether none of the texts that the part learned from has this word or emoji."""
        stem = word.partition("'")[0]
        return bool(self._vocabulary) and is_word(word) and not {word, stem} & self._vocabulary

    def _is_noise(self, word: str) -> bool:
        """Whether the part could only guess: an emoji that it never saw, or a word for what the bundle cannot draw.

        Any other strange word shares letters with words that it saw.
        """
        return word in self._undrawable or (self._is_strange(word) and is_emoji(word))

    def _left_out(self, words: Sequence[str], scene: Scene, before: Scene | None) -> list[str]:
        """Who is named for the first time and not shown, because two others are."""
        if len(scene.people) < 2:
            return []
        shown = {*scene.people, *(before.people if before is not None else ())}
        return [name for name in self._words.people if name.lower() in words and name not in shown]

    def _notice(self, problems: Sequence[str], words: Sequence[str]) -> str | None:
        bundle, parts = self._words, list(problems)
        if parts:
            known = "; ".join(", ".join(names) for names in (bundle.people, bundle.motions, bundle.places))
            parts.append(f"{self._name} reads English and knows {known}")
        if len(words) == MAX_WORDS:
            parts.append(f"only the first {MAX_WORDS} words are read")
        return "; ".join(parts) or None


def _goes_on(words: Sequence[str], scene: Scene) -> bool:
    """Whether the words ask for what the scene shows already: "keep going", or its motion or place by name."""
    stem = scene.motion.split()[0].rstrip("e")
    named = any(word.startswith(stem) or word == scene.place for word in words)
    return named or _GO_ON.search(" ".join(words)) is not None


def _says_nothing(logits: ReaderLogits) -> bool:
    """Whether neither a person nor a motion is likelier than all others by more than DOUBT."""
    return max(_lead(logits.people[:, FIRST] - logits.people[:, ABSENT]), _lead(logits.motion)) <= DOUBT


def _lead(scores: FloatArray) -> float:
    """How much likelier the likeliest is than the next."""
    ordered = np.sort(scores)
    return float(ordered[-1] - ordered[-2]) if len(ordered) > 1 else np.inf


def _who(logits: FloatArray, shown: Sequence[int] = (), nobody: bool = False) -> tuple[int, ...]:
    """The likeliest choice of one person named first and at most one named second; logits [P, 3].

    shown: those who stay unless others are likelier by more than twice DOUBT. nobody: maybe nobody is there.
    """
    if not np.isfinite(logits).all():
        raise BackendError("the reader's logits are not numbers", do="run: animegamer-rt selftest")
    # Against everybody being absent.
    first, second = logits[:, FIRST] - logits[:, ABSENT], logits[:, SECOND] - logits[:, ABSENT]
    everybody = range(len(logits))
    choices = [(one,) for one in everybody] + [(one, two) for one in everybody for two in everybody if one != two]

    def score(who: Sequence[int]) -> float:
        return float(first[who[0]] + sum(second[other] for other in who[1:]))

    best = max(choices, key=score)
    if shown and score(best) - max(map(score, permutations(shown))) <= 2 * DOUBT:
        return tuple(shown)
    return () if nobody and score(best) < 0 else best


def _best(values: Sequence[Value], logits: FloatArray, before: Value | None = None) -> Value:
    """The likeliest of the values; `before` unless another is likelier by more than DOUBT."""
    if not np.isfinite(logits).all():
        raise BackendError("the reader's logits are not numbers", do="run: animegamer-rt selftest")
    best = int(np.argmax(logits))
    if before is not None and logits[best] - logits[values.index(before)] <= DOUBT:
        return before
    return values[best]
