"""Instruction and the scene so far -> the new scene: everyday words become a caption that the predictor knows.

Words, rules and phrases belong to the bundle (`language`). What the instruction leaves out stays the same, and absent
people keep their clothes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TypeVar

import numpy as np

from animegamer_rt.backends.interface import FloatArray, IntArray, PictureReaderEngine, ReaderEngine, ReaderLogits
from animegamer_rt.bundle.language_file import bundle_language
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import ReaderWords
from animegamer_rt.errors import BackendError
from animegamer_rt.language.rules import Language, filled
from animegamer_rt.language.words import GRAMS, MAX_WORDS, Vocabulary, is_word, split_words, word_features
from animegamer_rt.state.game import HOURS, LEVELS, Instruction, Scene, left_last

from .image import Picture, prepare

Value = TypeVar("Value")

ABSENT, FIRST, SECOND = range(3)
"""Values for a person, in the output `people` and in the input `scene`."""

DOUBT = 2.0
"""How much likelier (difference of logits) another place, hour or clothes must be than the previous scene's.

A wrong change of them stays in the game. None of the 803 turns used to choose it needs less.
"""

MANY_STRANGE = 3
"""Number of different unknown words from which the notice names them, even among many known ones."""

MOST_NAMED = 5
"""Most words named in a notice; it counts the others."""

SURE = 12.0
"""How much likelier (difference of logits) one person must be than all others for a word that names somebody.

On their own, "fox", "lad" and "mage" lead by 20 and more; "cat", "king" and "witch" by 7 to 14.
"""

CLEAR = 2.0
"""How much likelier some clothes must be for a word that names them: "gown" and "mac" pass, "jacket" does not."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How an instruction was understood.

    unknown: words for things that the bundle cannot draw, in lower case. text: the scene in one line for people.
    notice: a line about what was not understood; None if everything was. seconds: inside the engine.
    """

    scene: Scene
    unknown: tuple[str, ...]
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
        self._engine, self._pictures, self._words, self._name = engine, pictures, words, name
        self._language, self._file = language, language.file
        self._vocabulary = Vocabulary(words.vocabulary.split(), words.undrawable.split())

    @classmethod
    def from_bundle(
        cls, bundle: Bundle, engine: ReaderEngine, pictures: PictureReaderEngine | None = None
    ) -> InstructionReader:
        """The reader of a bundle that has one. Raises BundleFileError if its language file cannot be used."""
        words = bundle.manifest.reader
        assert words is not None, "open_engines loads the reader of a bundle that has one"
        return cls(engine, pictures, words, bundle_language(bundle), bundle.manifest.name)

    def read(self, instruction: Instruction, before: Scene | None, shown: Scene | None = None) -> Reading:
        """The scene that an instruction asks for after the scene `before` (None: nothing has been shown yet).

        shown: the turn's earlier scene if it is replayed: it is kept even if the rules have changed.
        A text without a Latin letter or an emoji, or mostly of words missing in the part's training texts, such as one
        in another language, leaves the scene unchanged. Raises BackendError if the engine fails.
        """
        say, vocabulary = self._language.say, self._vocabulary
        words = vocabulary.spelt_out(self._language.rewritten(split_words(instruction.text)), self._file.endings)
        readable = sum(map(is_word, words))
        learned = [vocabulary.with_letters_in_order(word) for word in words] if readable else []
        pairs = list(zip(words, learned, strict=False))
        strange = [word for word, known in pairs if vocabulary.is_strange(known)]
        mostly, many = len(strange) > readable / 2, len(set(strange)) >= MANY_STRANGE
        if before is not None and (not readable or (mostly and many)):
            return Reading(before, (), self.describe(before), self._notice([say("nothing_understood")], words))

        told = [(word, known) for word, known in pairs if not vocabulary.is_noise(known)]
        features = word_features([known for _, known in told])[None] if told else np.zeros((1, 1, GRAMS), np.int64)
        started = time.perf_counter()
        logits = self._engine.read(features, self._encode(before))
        unknown = [word for (word, _), mark in zip(told, logits.unknown, strict=False) if mark > 0]
        unknown += [word for word, known in pairs if known in vocabulary.undrawable]
        if many or (mostly and len(strange) > 1):
            unknown += strange
        scene = self._decode(logits, before, doubtful=bool(unknown), text=learned)
        seconds = time.perf_counter() - started

        if shown not in (None, scene):
            return Reading(shown, (), self.describe(shown), None, seconds)
        unchanged = before is not None and scene.shows_the_same(before) and not self._goes_on(words, scene)
        if unchanged and not unknown:
            unknown = strange
        named = tuple(dict.fromkeys(word for word in unknown if is_word(word) and word not in self._file.articles))
        problems = [] if readable else [say("nothing_understood")]
        if named:
            problems.append(say("not_understood", words=self._quoted(named)))
        elif unknown:
            problems.append(say("not_all_understood"))
        elif unchanged:
            problems.append(say("nothing_changes"))
        elif readable and before is None and _says_nothing(logits):
            problems.append(say("who_does_what"))
        left_out = self._left_out(words, scene, before)
        if left_out:
            problems.append(say("left_out", people=say("and").join(left_out)))
        elif self._language.has("crowd", words):
            problems.append(say("crowd"))
        return Reading(scene, named, self.describe(scene), self._notice(problems, words), seconds)

    def read_image(self, picture: Picture, instruction: Instruction) -> Scene | None:
        """The scene of a picture in which `instruction` happens; None if nobody is recognised.

        picture: u8 [H, W, 3]. Raises BackendError if an engine fails.
        """
        if self._pictures is None:
            return None
        height, width = self._pictures.height, self._pictures.width
        logits = self._pictures.read(prepare(picture, height, width, width / height))
        if not likeliest_people(logits.people, nobody=True):
            return None
        return self.read(instruction, self._decode(logits, None)).scene

    def nobody_seen(self, notice: str | None) -> str | None:
        """The notice after a start picture in which nobody was recognised, before the turn's own `notice`."""
        if self._pictures is None:
            return notice
        seen = self._language.say("nobody_seen", bundle=self._name, people=", ".join(self._words.people))
        return "; ".join(filter(None, (seen, notice))) or None

    def describe(self, scene: Scene) -> str:
        """Tofi in a raincoat runs wildly, city, night. The caption, if the bundle has no phrase for it."""
        motion = scene.motion if len(scene.people) > 1 else self._language.said(scene.motion)
        described = self._language.say(
            "description",
            people=self._dressed(scene.people, scene.clothes),
            motion=motion,
            manner=self._words.manners[LEVELS.index(scene.level)],
            place=scene.place,
            hour=scene.hour,
        )
        return described or scene.caption

    def _encode(self, scene: Scene | None) -> np.ndarray:
        return encode_scene(scene, self._words, self._engine.scene_numbers)

    def _decode(
        self, logits: ReaderLogits, before: Scene | None, doubtful: bool = False, text: Sequence[str] = ()
    ) -> Scene:
        """The scene of the logits. Place, hour and clothes stay unless others are likelier by DOUBT.

        doubtful: not all words were understood: motion stays as well, and people unless twice as clear.
        text: the first newcomer it names as company joins a person shown alone.
        """
        words = self._words
        earlier = before if doubtful else None
        shown = [] if earlier is None else [words.people.index(name) for name in earlier.people]
        people = tuple(words.people[person] for person in likeliest_people(logits.people, shown))
        if len(people) == 1:
            there = {*people, *(before.people if before is not None else ())}
            company = (self._named(match.slots["who"][0]) for match in self._language.find("company", text))
            people += tuple(name for name in company if name is not None and name not in there)[:1]
        worn = before.clothes if before is not None else {}
        each = zip(words.people, logits.clothes, strict=True)
        asked = {name: likeliest(words.clothes, row, worn.get(name)) for name, row in each}
        clothes = {name: asked[name] if name in people else worn.get(name, words.clothes[0]) for name in words.people}
        if before is not None:
            clothes |= self._put_on(text, people, clothes, before)
        place = likeliest(words.places, logits.place, None if before is None else before.place)
        hour = likeliest(HOURS, logits.night, None if before is None else before.hour)
        motion = likeliest(words.motions, logits.motion, None if earlier is None else earlier.motion)
        level = likeliest(LEVELS, logits.level, None if earlier is None else earlier.level)
        position = likeliest(words.positions, logits.position)
        caption = self._language.say(
            "caption",
            people=self._dressed(people, clothes),
            position=words.position_words[words.positions.index(position)],
            manner=words.manners[LEVELS.index(level)],
            motion=motion,
            hour=hour,
            place=place,
        )
        left = left_last(before.people, before.left, people) if before is not None else ()
        return Scene(people, clothes, motion, level, place, hour, position, caption, left)

    def _named(self, word: str) -> str | None:
        """The person whom the word names on its own, such as Tofi for "fox"; None for any other word."""
        if self._vocabulary.is_strange(word) or self._vocabulary.is_noise(word):
            return None
        logits = self._engine.read(word_features([word])[None], self._encode(None))
        scores = presence_scores(logits.people)
        clear = lead(scores) > SURE and logits.unknown[0] <= 0
        return self._words.people[int(np.argmax(scores))] if clear else None

    def _put_on(
        self, text: Sequence[str], people: Sequence[str], worn: Mapping[str, str], before: Scene
    ) -> dict[str, str]:
        """What one of `people` wears by the text's words alone, if the part changed nobody's clothes.

        Plain clothes if they come off, what somebody shown before wears, or what the words name, for the newest person.
        """
        plain, language = self._words.clothes[0], self._language
        if any(worn[name] != before.clothes[name] for name in people):
            return {}
        bare = [name for name in people if worn[name] == plain]
        if language.has("undressed", text):
            dressed = set(people) - set(bare)
            who = dressed & set(map(self._named, text)) or dressed
            return {who.pop(): plain} if len(who) == 1 else {}
        if language.has("clothes_unclear", text):
            return {}
        if language.has("dressed_alike", text):
            kinds = {before.clothes[name] for name in before.people} - {plain}
            return {bare[0]: kinds.pop()} if len(bare) == len(kinds) == 1 else {}
        come = [name for name in bare if name not in before.people]
        if len(come) != 1 or any(name not in (None, come[0]) for name in map(self._named, text)):
            return {}
        words = [match.slots["word"][0] for match in language.find("clothes", text)]
        kinds = {kind for word in words if (kind := self._clothes_of(word)) is not None}
        return {come[0]: kinds.pop()} if len(kinds) == 1 else {}

    def _clothes_of(self, word: str) -> str | None:
        """The clothes that the word names on its own, such as party clothes for "gown"; None for any other word."""
        if self._vocabulary.is_strange(word) or self._vocabulary.is_noise(word):
            return None
        asked = [filled(sentence, {"word": (word,)}) for sentence in self._file.clothes_asked]
        read = [self._engine.read(word_features(one)[None], self._encode(None)).clothes.mean(axis=0) for one in asked]
        best = {int(np.argmax(logits)) if lead(logits) > CLEAR else 0 for logits in read}
        return self._words.clothes[best.pop()] if len(best) == 1 and best != {0} else None

    def _dressed(self, people: Sequence[str], clothes: Mapping[str, str]) -> str:
        """Tofi in everyday clothes and Mirel in a raincoat."""
        kinds, say = self._words, self._language.say
        worn = {name: kinds.clothes_words[kinds.clothes.index(clothes[name])] for name in people}
        return say("and").join(say("dressed", name=name, clothes=worn[name]) for name in people)

    def _goes_on(self, words: Sequence[str], scene: Scene) -> bool:
        """Whether the words ask for what the scene already shows: "keep going", or its motion or place by name."""
        stem = scene.motion.split()[0].rstrip(self._file.silent_endings)
        named = any(word.startswith(stem) or word == scene.place for word in words)
        return named or self._language.has("goes_on", words)

    def _left_out(self, words: Sequence[str], scene: Scene, before: Scene | None) -> list[str]:
        """People named for the first time and not shown, because two others are."""
        if len(scene.people) < 2:
            return []
        shown = {*scene.people, *(before.people if before is not None else ())}
        return [name for name in self._words.people if name.lower() in words and name not in shown]

    def _quoted(self, words: Sequence[str]) -> str:
        more = len(words) - MOST_NAMED
        quoted = [f'"{word}"' for word in words[:MOST_NAMED]]
        return ", ".join(quoted + ([self._language.say("more", count=more)] if more > 0 else []))

    def _notice(self, problems: Sequence[str], words: Sequence[str]) -> str | None:
        bundle, parts = self._words, list(filter(None, problems))
        if parts:
            known = "; ".join(", ".join(names) for names in (bundle.people, bundle.motions, bundle.places))
            parts.append(self._language.say("knows", bundle=self._name, words=known))
        if len(words) == MAX_WORDS:
            parts.append(self._language.say("cut", count=MAX_WORDS))
        return "; ".join(filter(None, parts)) or None


def _says_nothing(logits: ReaderLogits) -> bool:
    """Whether neither a person nor a motion is likelier than all others by more than DOUBT."""
    return max(lead(presence_scores(logits.people)), lead(logits.motion)) <= DOUBT


def encode_scene(scene: Scene | None, words: ReaderWords, numbers: int) -> IntArray:
    """The input `scene`, i64 [1, P + 5]: a number per person, then motion, level, place, hour, position.

    numbers: the length of the network's input. Beyond P + 5, a 0 or 1 per person follows: whether they left last.
    """
    told = numbers > len(words.people) + 5
    if scene is None:
        nothing = (len(words.motions), len(LEVELS), len(words.places), len(HOURS), len(words.positions))
        return np.array([[*[0] * len(words.people), *nothing, *[0] * (len(words.people) if told else 0)]], np.int64)
    presence = [scene.people.index(name) + FIRST if name in scene.people else ABSENT for name in words.people]
    worn = [words.clothes.index(scene.clothes[name]) for name in words.people]
    rest = (
        words.motions.index(scene.motion),
        LEVELS.index(scene.level),
        words.places.index(scene.place),
        HOURS.index(scene.hour),
        words.positions.index(scene.position),
    )
    people = [here * len(words.clothes) + clothes for here, clothes in zip(presence, worn, strict=True)]
    left = [int(name in scene.left) for name in words.people] if told else []
    return np.array([[*people, *rest, *left]], np.int64)


def presence_scores(logits: FloatArray) -> FloatArray:
    """How much likelier each person is to be named first than absent; people's logits [P, 3] -> [P]."""
    return logits[:, FIRST] - logits[:, ABSENT]


def lead(scores: FloatArray) -> float:
    """How much likelier the likeliest is than the runner-up."""
    ordered = np.sort(scores)
    return float(ordered[-1] - ordered[-2]) if len(ordered) > 1 else np.inf


def likeliest_people(logits: FloatArray, shown: Sequence[int] = (), nobody: bool = False) -> tuple[int, ...]:
    """The likeliest choice of one person named first and at most one named second; logits [P, 3].

    shown: people who stay unless others are likelier by more than twice DOUBT. nobody: the scene may be empty.
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
    if shown and score(best) - max(map(score, permutations(shown))) <= 2 * DOUBT:
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
