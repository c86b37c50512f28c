"""Scenes as the reader's network has them: its input of the scene before, and its logits as people and values.

Knows the words that each number stands for; no language.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import TypeVar

import numpy as np

from animegamer_rt.backends.interface import FloatArray, IntArray
from animegamer_rt.bundle.manifest import ReaderWords
from animegamer_rt.errors import BackendError
from animegamer_rt.state.scene import HOURS, LEVELS, Scene

Value = TypeVar("Value")

ABSENT, FIRST, SECOND = range(3)
"""Of a person, in the output `people` and in the input `scene`."""

DOUBT = 2.0
"""How much likelier (difference of logits) another place, hour or clothes must be than those of the scene before.

A wrong change of them stays in the game. None of the 803 turns that this was chosen with needs less.
"""


def encode_scene(scene: Scene | None, words: ReaderWords, numbers: int) -> IntArray:
    """The input `scene`, i64 [1, P + 5]: a number for each person, then motion, level, place, hour, position.

    numbers: how many the network takes. With more than P + 5, each person's 0 or 1 follows: whether it left last.
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
    """How much likelier it is that each person is named first than absent; people's logits [P, 3] -> [P]."""
    return logits[:, FIRST] - logits[:, ABSENT]


def lead(scores: FloatArray) -> float:
    """How much likelier the likeliest is than the next."""
    ordered = np.sort(scores)
    return float(ordered[-1] - ordered[-2]) if len(ordered) > 1 else np.inf


def likeliest_people(logits: FloatArray, shown: Sequence[int] = (), nobody: bool = False) -> tuple[int, ...]:
    """The likeliest choice of one person named first and at most one named second; logits [P, 3].

    shown: those who stay unless others are likelier by more than twice DOUBT. nobody: maybe nobody is there.
    Raises BackendError for logits that are not numbers.
    """
    _check(logits)
    # Against everybody being absent.
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
        raise BackendError("the reader's logits are not numbers", do="run: animegamer-rt selftest")
