"""Turns of the language corpus as arrays: words, previous scene, requested scene."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from animegamer_pocket.language import inflect
from animegamer_pocket.language.games import Turn, sample_game
from animegamer_pocket.language.sentences import Utterance
from animegamer_pocket.world.scene import (
    CHARACTERS,
    DEFAULT_OUTFIT,
    MOTIONS,
    OUTFITS,
    PLACES,
    SPOTS,
    Scene,
)
from animegamer_rt.backends.interface import NOTES
from animegamer_rt.language.words import is_emoji, is_word, split_words, word_features
from animegamer_rt.state.game import left_last

from .model import SCENE_SIZES

NOT_JUDGED = -100
_EASY_SHARE = 0.8
"""The share of turns without changes of people and clothes that is trained on."""
POOL = 24
"""Number of batches sorted by length together."""
_LEAST_USES = 3
"""Minimum uses of a vocabulary word; rarer ones are mostly typos."""
_POSSESSIVES = frozenset(("his", "her", "its", "their", "your"))


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """One turn. scene int64 [25]; truth int64 [26]: people 5, clothes 5, other heads 5, refused 5, notes 6; unknown f32
    [words].
    """

    words: list[str]
    scene: npt.NDArray[np.int64]
    truth: npt.NDArray[np.int64]
    unknown: npt.NDArray[np.float32]


def encode_scene(
    scene: Scene | None, worn: Mapping[str, str], left: Sequence[str], earlier: npt.NDArray[np.int64] | None = None
) -> npt.NDArray[np.int64]:
    """The numbers of a scene. worn: last outfits; left: who left last; earlier: the numbers of the scene before.

    None: no scene yet.
    """
    row = []
    for name in CHARACTERS:
        presence = 1 + scene.characters.index(name) if scene is not None and name in scene.characters else 0
        row.append(presence * len(OUTFITS) + OUTFITS.index(worn.get(name, DEFAULT_OUTFIT)))
    if scene is None:
        row += [size - 1 for size in SCENE_SIZES[len(CHARACTERS) :]]
    else:
        row += [
            MOTIONS.index(scene.motion),
            scene.level - 1,
            PLACES.index(scene.place),
            int(scene.night),
            SPOTS.index(scene.spot),
        ]
    past = encode_scene(None, {}, (), np.zeros(0, np.int64)) if earlier is None else earlier
    return np.array([*row, *(int(name in left) for name in CHARACTERS), *past[: len(SCENE_SIZES)]], np.int64)


def samples_of(game: Sequence[Turn]) -> Iterator[Sample]:
    """The turns of a game, each with the scene before it."""
    worn: dict[str, str] = {}
    before: Scene | None = None
    left: tuple[str, ...] = ()
    given: npt.NDArray[np.int64] | None = None
    for turn in game:
        scene, labels = turn.scene, turn.utterance.labels
        words = split_words(turn.utterance.text)
        given = encode_scene(before, worn, left, given)
        if before is not None:
            left = left_last(before.characters, left, scene.characters)
        worn.update(zip(scene.characters, scene.outfits, strict=True))
        before = scene
        if words:
            yield Sample(words, given, _truth(scene, turn.utterance), _unknown(words, labels))


def _truth(scene: Scene, utterance: Utterance) -> npt.NDArray[np.int64]:
    labels = utterance.labels
    worn = dict(zip(scene.characters, scene.outfits, strict=True))
    people = [1 + scene.characters.index(name) if name in worn else 0 for name in CHARACTERS]
    if "who" not in labels:
        people = [NOT_JUDGED] * len(CHARACTERS)
    clothes = [OUTFITS.index(worn[name]) if name in worn else NOT_JUDGED for name in CHARACTERS]
    tail = [
        MOTIONS.index(scene.motion) if "motion" in labels else NOT_JUDGED,
        scene.level - 1 if "level" in labels else NOT_JUDGED,
        PLACES.index(scene.place),
        int(scene.night),
        SPOTS.index(scene.spot),
    ]
    refused = [int(name in utterance.refused) for name in CHARACTERS]
    notes = [int(note in utterance.notes) for note in NOTES]
    return np.array([*people, *clothes, *tail, *refused, *notes], np.int64)


def _unknown(words: Sequence[str], labels: Mapping[str, object]) -> npt.NDArray[np.float32]:
    marks = np.zeros(len(words), np.float32)
    for phrase in labels.get("unknown", ()):  # type: ignore[attr-defined]
        piece = split_words(str(phrase))
        for start in range(len(words) - len(piece) + 1):
            if piece and _is_said(words[start : start + len(piece)], piece):
                marks[start : start + len(piece)] = 1
    return marks


def _is_said(words: Sequence[str], phrase: Sequence[str]) -> bool:
    """Whether the words are the phrase; its first word may be inflected: "plays his flute" is "play their flute"."""
    return words[0] in _forms(phrase[0]) and all(
        word == asked or {word, asked} <= _POSSESSIVES for word, asked in zip(words[1:], phrase[1:], strict=True)
    )


@functools.cache
def _forms(word: str) -> frozenset[str]:
    if not word.isalpha():
        return frozenset((word,))
    return frozenset((word, inflect.third_person(word), inflect.past(word), inflect.ing(word)))


def endless_samples(seed: int) -> Iterator[Sample]:
    """Samples of random games without end, reproducible by seed."""
    rng = random.Random(seed)
    while True:
        for sample in samples_of(sample_game(rng, train=False)):
            if _is_hard(sample) or rng.random() < _EASY_SHARE:
                yield sample


def _is_hard(sample: Sample) -> bool:
    """Whether people or clothes change, or something is not understood: the later turns read wrong most often."""
    people = len(CHARACTERS)
    before, after, worn = sample.scene[:people], sample.truth[:people], sample.truth[people : 2 * people]
    changed = before // len(OUTFITS) != after
    dressed = (after > 0) & (before % len(OUTFITS) != worn)
    return bool((changed | dressed).any() or sample.unknown.any())


def vocabulary(turns: int) -> str:
    """The words and emoji in that many turns of the corpus, sorted, separated by spaces: `ReaderWords.vocabulary`.

    Excludes words used only for what pocket cannot draw.
    """
    uses: Counter[str] = Counter()
    for sample in itertools.islice(endless_samples(seed=0), turns):
        uses.update(word for word, mark in zip(sample.words, sample.unknown, strict=True) if not mark and is_word(word))
    return " ".join(sorted(word for word, count in uses.items() if count >= _LEAST_USES or is_emoji(word)))


def batches(seed: int, size: int) -> Iterator[list[Sample]]:
    """Batches of samples of similar length: POOL batches are sorted by length and shuffled."""
    samples, rng = endless_samples(seed), random.Random(seed)
    while True:
        taken = sorted((next(samples) for _ in range(size * POOL)), key=lambda sample: len(sample.words))
        groups = [taken[start : start + size] for start in range(0, len(taken), size)]
        rng.shuffle(groups)
        yield from groups


def stack(batch: Sequence[Sample]) -> tuple[npt.NDArray[np.int64], ...]:
    """features [B, W, GRAMS], scene [B, 25], mask bool [B, W], truth [B, 26], unknown f32 [B, W]."""
    words = max(len(sample.words) for sample in batch)
    features = np.stack([np.pad(word_features(s.words), ((0, words - len(s.words)), (0, 0))) for s in batch])
    unknown = np.stack([np.pad(s.unknown, (0, words - len(s.words))) for s in batch])
    mask = np.stack([np.arange(words) < len(s.words) for s in batch])
    return features, np.stack([s.scene for s in batch]), mask, np.stack([s.truth for s in batch]), unknown  # type: ignore[return-value]
