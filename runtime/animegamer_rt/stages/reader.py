"""Instruction and the scene so far -> the new scene: everyday words become a caption that the predictor knows.

Words and phrases belong to the bundle. What the instruction leaves out stays the same, and absent
people keep their clothes.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TypeVar

import numpy as np

from animegamer_rt.backends.interface import (
    NOTES,
    FloatArray,
    IntArray,
    PictureReaderEngine,
    ReaderEngine,
    ReaderLogits,
)
from animegamer_rt.bundle.language_file import bundle_language
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import ReaderWords
from animegamer_rt.errors import BackendError, InstructionError
from animegamer_rt.language.answers import Answer
from animegamer_rt.language.phrases import Language
from animegamer_rt.language.words import GRAMS, MAX_WORDS, Vocabulary, is_word, split_words, word_features
from animegamer_rt.state.game import HOURS, LEVELS, Instruction, Scene, left_last

from .image import Picture, prepare
from .narrator import Narrator

Value = TypeVar("Value")

ABSENT, FIRST, SECOND = range(3)
"""Values for a person, in the output `people` and in the input `scene`."""

DOUBT = 2.0
"""How much likelier (difference of logits) another place, hour or clothes must be than the previous scene's.

A wrong change of them stays in the game. None of the 803 turns used to choose it needs less. Of 1 813 turns, 47 would
change nothing and surely ask for more than that: none wants its turn.
"""

VERY_SURE = 2 * DOUBT
"""How sure (a logit) the reader must be that a text takes a turn back, which is then lost.

Of 90 ways to say so in 25 scenes, 2 in 100 are less sure; of "that was great" and "he goes back", 3 in 4 and all.
"""

SURE = 0.8
"""Where a part of a scene is less probable than this, the answer says so if it has nothing else to say.

Of 217 misread turns measured, 39 that had no notice get this one; of 1 926 others, 40.
"""

MANY_STRANGE = 3
"""Number of different unknown words from which a text of mostly such words is taken for another language."""

MOST_NAMED = 5
"""Most words that an answer names."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How an instruction was understood.

    unknown: words for things that the bundle cannot draw, in lower case. answer: what changes and what is not possible.
    text: what changes, in one line for people; the whole scene if it is the first, or nothing does. notice: a line
    about what is not possible; None if everything is. seconds: inside the engine.
    """

    scene: Scene
    unknown: tuple[str, ...]
    answer: tuple[Answer, ...]
    text: str
    notice: str | None
    seconds: float = 0.0


class InstructionReader:
    """One bundle's readers with its words and language. name: the bundle's, for notices. Stateless between turns.

    pictures: reads start pictures; None in a bundle without that part.
    """

    def __init__(
        self,
        engine: ReaderEngine,
        pictures: PictureReaderEngine | None,
        words: ReaderWords,
        language: Language,
        name: str,
    ) -> None:
        self._engine, self._pictures, self._words = engine, pictures, words
        self._file, self._narrator = language.file, Narrator(words, language, name)
        self._vocabulary = Vocabulary(words.vocabulary.split(), words.undrawable.split())

    @classmethod
    def from_bundle(
        cls, bundle: Bundle, engine: ReaderEngine, pictures: PictureReaderEngine | None = None
    ) -> InstructionReader:
        """The reader of a bundle that has one. Raises BundleFileError if its language file cannot be used."""
        words = bundle.manifest.reader
        assert words is not None, "open_engines loads the reader of a bundle that has one"
        return cls(engine, pictures, words, bundle_language(bundle), bundle.manifest.name)

    def read(
        self,
        instruction: Instruction,
        before: Scene | None,
        earlier: Scene | None = None,
        shown: Scene | None = None,
        *,
        unseen: bool = False,
    ) -> Reading:
        """The scene that an instruction asks for after the scene `before` (None: nothing has been shown yet).

        earlier: the scene before that. shown: what a replayed turn showed, which is kept even if the reader has
        changed. unseen: whether a start picture was shown in which nobody was recognised.
        Raises InstructionError with the code `not_understood` for a text of which nothing can be drawn or changes,
        or most words are missing in the part's training texts; with `undo` for one that takes the last turn back; and
        BackendError if the engine fails.
        """
        try:
            scene, unknown, answer, seconds = self._read(instruction, before, earlier)
        except InstructionError:
            if shown is None:
                raise
            scene, unknown, answer, seconds = shown, (), [], 0.0
        if shown not in (None, scene):
            assert shown is not None
            scene, unknown, answer = shown, (), []
        if unseen:
            answer.insert(0, Answer("nobody_seen", people=self._words.people))
        changes, line = self._narrator.changes(scene, before), self._narrator.line
        text = self.describe(scene) if before is None else line(changes) or self.describe(scene)
        return Reading(scene, unknown, (*changes, *answer), text, line(answer) or None, seconds)

    def _read(
        self, instruction: Instruction, before: Scene | None, earlier: Scene | None
    ) -> tuple[Scene, tuple[str, ...], list[Answer], float]:
        """The scene, the unknown words, what is not possible, and seconds."""
        vocabulary = self._vocabulary
        words = vocabulary.spelt_out(split_words(instruction.text), self._file.endings)
        pairs = [(word, vocabulary.with_letters_in_order(word)) for word in words]
        strange = [word for word, known in pairs if vocabulary.is_strange(known)]
        told = [(word, known) for word, known in pairs if not vocabulary.is_noise(known)]
        features = word_features([known for _, known in told])[None] if told else np.zeros((1, 1, GRAMS), np.int64)
        started = time.perf_counter()
        logits = self._engine.read(features, self._encode(before, earlier))
        seconds = time.perf_counter() - started
        readable = sum(map(is_word, words))
        mostly_strange = len(strange) > readable / 2
        marks = dict(zip(NOTES, logits.notes, strict=True))
        notes = {note for note, mark in marks.items() if mark > (VERY_SURE if note == "undo" else 0)}
        if not told or not readable or (mostly_strange and len(set(strange)) >= MANY_STRANGE):
            notes.add("nothing")
        if "nothing" in notes:
            raise self._refusal([Answer("nothing_understood")])
        if "undo" in notes and before is not None:
            raise InstructionError("the text takes the last turn back", code="undo", do="rewind the game by one turn")

        unknown = [word for (word, _), mark in zip(told, logits.unknown, strict=False) if mark > 0]
        unknown += [word for word, known in pairs if known in vocabulary.undrawable]
        scene = self._decode(logits, before, doubtful=bool(unknown) and "substitute" not in notes)
        goes_on = "goes_on" in notes and (not unknown or "substitute" in notes)
        unchanged = before is not None and scene.shows_the_same(before) and not goes_on
        in_vain = unchanged and bool(unknown or strange or "crowd" in notes or marks["goes_on"] < -DOUBT)
        unknown = unknown or (strange if unchanged else [])
        named = tuple(dict.fromkeys(word for word in unknown if is_word(word) and word not in self._file.articles))
        refused = [name for name, mark in zip(self._words.people, logits.refused, strict=True) if mark > 0]
        left_out = tuple(name for name in refused if name not in scene.people)
        answer = self._limits(notes, scene, named[:MOST_NAMED], unchanged, some_unknown=bool(unknown))
        if left_out:
            answer.append(Answer("left_out", people=left_out))
        if in_vain:
            raise self._refusal(answer)
        if len(words) == MAX_WORDS:
            answer.append(Answer("cut", value=str(MAX_WORDS)))
        if not answer and self._certainty(logits, scene) < SURE:
            answer.append(Answer("unsure"))
        return scene, named, answer, seconds

    def _certainty(self, logits: ReaderLogits, scene: Scene) -> float:
        """The least probability of what a scene shows: who, what each wears, motion, place and hour."""
        words, people = self._words, probabilities(logits.people)
        worn = [words.clothes.index(scene.clothes[name]) for name in words.people]
        clothes = probabilities(logits.clothes)[np.arange(len(worn)), worn]
        shown = np.array([name in scene.people for name in words.people])
        parts = (
            np.where(shown, 1 - people[:, ABSENT], people[:, ABSENT]).min(),
            clothes[shown].min(),
            probabilities(logits.motion)[words.motions.index(scene.motion)],
            probabilities(logits.place)[words.places.index(scene.place)],
            probabilities(logits.night)[HOURS.index(scene.hour)],
        )
        return float(min(parts))

    def _refusal(self, answer: Sequence[Answer]) -> InstructionError:
        """No turn is drawn where nothing of a text can be."""
        do, fields = self._narrator.example() or "say who does what", [one.to_fields() for one in answer]
        said = self._narrator.line(answer) or "nothing understood"
        return InstructionError(said, code="not_understood", answer=fields, do=do)

    def _limits(
        self, notes: Collection[str], scene: Scene, named: tuple[str, ...], unchanged: bool, some_unknown: bool
    ) -> list[Answer]:
        """What a text asks for that its scene does not show."""
        found = []
        if named and "substitute" in notes:
            found.append(Answer("substitute", scene.people, scene.motion, named))
        elif named:
            found.append(Answer("not_understood", words=named))
        elif some_unknown:
            found.append(Answer("not_all_understood"))
        elif unchanged and "crowd" not in notes:
            found.append(Answer("nothing_changes"))
        found += [Answer(note, scene.people, scene.motion) for note in ("no_motion", "second_motion") if note in notes]
        return found + [Answer("crowd")] * ("crowd" in notes)

    def read_image(self, picture: Picture, instruction: Instruction) -> Scene | None:
        """The scene of a picture in which `instruction` happens; None if nobody is recognised.

        picture: u8 [H, W, 3]. Raises BackendError if an engine fails, and InstructionError as `read`.
        """
        if self._pictures is None:
            return None
        height, width = self._pictures.height, self._pictures.width
        logits = self._pictures.read(prepare(picture, height, width, width / height))
        if not likeliest_people(logits.people, nobody=True):
            return None
        return self.read(instruction, self._decode(logits, None)).scene

    @property
    def reads_pictures(self) -> bool:
        """Whether the bundle recognises people in start pictures."""
        return self._pictures is not None

    def describe(self, scene: Scene) -> str:
        """The whole scene in a line for people."""
        return self._narrator.describe(scene)

    def _encode(self, scene: Scene | None, earlier: Scene | None = None) -> np.ndarray:
        return encode_scene(scene, self._words, self._engine.scene_numbers, earlier)

    def _decode(self, logits: ReaderLogits, before: Scene | None, doubtful: bool = False) -> Scene:
        """The scene of the logits. Place, hour and clothes stay unless others are likelier by DOUBT.

        doubtful: not all words were understood: motion stays as well, and people unless twice as clear.
        """
        words = self._words
        kept = before if doubtful else None
        shown = [] if kept is None else [words.people.index(name) for name in kept.people]
        people = tuple(words.people[person] for person in likeliest_people(logits.people, shown))
        worn = before.clothes if before is not None else {}
        each = zip(words.people, logits.clothes, strict=True)
        asked = {name: likeliest(words.clothes, row, worn.get(name)) for name, row in each}
        clothes = {name: asked[name] if name in people else worn.get(name, words.clothes[0]) for name in words.people}
        left = left_last(before.people, before.left, people) if before is not None else ()
        return self._narrator.captioned(
            people=people,
            clothes=clothes,
            motion=likeliest(words.motions, logits.motion, None if kept is None else kept.motion),
            level=likeliest(LEVELS, logits.level, None if kept is None else kept.level),
            place=likeliest(words.places, logits.place, None if before is None else before.place),
            hour=likeliest(HOURS, logits.night, None if before is None else before.hour),
            position=likeliest(words.positions, logits.position),
            left=left,
        )


def encode_scene(scene: Scene | None, words: ReaderWords, numbers: int, earlier: Scene | None = None) -> IntArray:
    """The input `scene`, i64 [1, P + 5]: a number per person, then motion, level, place, hour, position.

    numbers: the length of the network's input. Beyond P + 5, a 0 or 1 per person follows: whether they left last; then
    the P + 5 numbers of the `earlier` scene.
    """
    left = [int(scene is not None and name in scene.left) for name in words.people]
    row = [*_numbers(scene, words), *left, *_numbers(earlier, words)]
    return np.array([row[:numbers]], np.int64)


def _numbers(scene: Scene | None, words: ReaderWords) -> list[int]:
    if scene is None:
        nothing = (len(words.motions), len(LEVELS), len(words.places), len(HOURS), len(words.positions))
        return [*[0] * len(words.people), *nothing]
    presence = [scene.people.index(name) + FIRST if name in scene.people else ABSENT for name in words.people]
    worn = [words.clothes.index(scene.clothes[name]) for name in words.people]
    people = [here * len(words.clothes) + clothes for here, clothes in zip(presence, worn, strict=True)]
    return [
        *people,
        words.motions.index(scene.motion),
        LEVELS.index(scene.level),
        words.places.index(scene.place),
        HOURS.index(scene.hour),
        words.positions.index(scene.position),
    ]


def probabilities(logits: FloatArray) -> FloatArray:
    """The softmax over the last axis."""
    raised = np.exp(logits - logits.max(-1, keepdims=True))
    shares: FloatArray = raised / raised.sum(-1, keepdims=True)
    return shares


def presence_scores(logits: FloatArray) -> FloatArray:
    """How much likelier each person is to be named first than absent; people's logits [P, 3] -> [P]."""
    return logits[:, FIRST] - logits[:, ABSENT]


def likeliest_people(logits: FloatArray, shown: Sequence[int] = (), nobody: bool = False) -> tuple[int, ...]:
    """The likeliest choice of one person named first and at most one named second; logits [P, 3].

    shown: people who stay unless others are likelier by more than VERY_SURE. nobody: the scene may be empty.
    Raises BackendError for logits that are not finite.
    """
    _check(logits)
    # Relative to everybody being absent.
    first, second = presence_scores(logits), logits[:, SECOND] - logits[:, ABSENT]
    everybody = range(len(logits))
    choices = [(one,) for one in everybody] + [(one, two) for one in everybody for two in everybody if one != two]

    def score(who: Sequence[int]) -> float:
        return float(first[who[0]] + sum(second[other] for other in who[1:]))

    best = max(choices, key=score)
    if shown and score(best) - max(map(score, permutations(shown))) <= VERY_SURE:
        return tuple(shown)
    return () if nobody and score(best) < 0 else best


def likeliest(values: Sequence[Value], logits: FloatArray, before: Value | None = None) -> Value:
    """The likeliest of the values; `before` unless another is likelier by more than DOUBT. Raises BackendError."""
    _check(logits)
    best = int(np.argmax(logits))
    if before is not None and logits[best] - logits[values.index(before)] <= DOUBT:
        return before
    return values[best]


def _check(logits: FloatArray) -> None:
    if not np.isfinite(logits).all():
        raise BackendError("the reader's logits are not finite", do="run: animegamer-rt selftest")
