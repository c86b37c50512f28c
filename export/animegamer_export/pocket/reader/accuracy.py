"""Plays files of sentences through the reader and counts what it reads right."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from animegamer_export.pocket.world.scene import CHARACTERS, MOTIONS, OUTFITS, PLACES
from animegamer_rt.stages.instruction_words import split_words, word_features

from .model import HEADS, SCENE_SIZES, Reader

_PAIRS = [(first, None) for first in range(len(CHARACTERS))] + list(itertools.permutations(range(len(CHARACTERS)), 2))
FIELDS = ("who", "motion", "place", "night", "outfits", "level")

Line = Mapping[str, Any]


def no_scene() -> np.ndarray[Any, np.dtype[np.int64]]:
    """The numbers of "no scene yet"."""
    return np.array([0] * len(CHARACTERS) + [size - 1 for size in SCENE_SIZES[len(CHARACTERS) :]], np.int64)


def read(reader: Reader, text: str, scene: np.ndarray[Any, np.dtype[np.int64]]) -> tuple[Any, list[str]]:
    """The numbers of the scene that a text asks for after `scene`, and the words that are not understood."""
    words = split_words(text)
    with torch.no_grad():
        out = reader(torch.from_numpy(word_features(words))[None], torch.from_numpy(scene)[None])
    logits = dict(zip(HEADS, (part[0].float() for part in out[:-1]), strict=True))
    people = logits["people"].log_softmax(-1).numpy()
    best = max(_PAIRS, key=lambda pair: _score(people, pair))
    clothes = logits["clothes"].argmax(-1).tolist()
    row = []
    for index, _ in enumerate(CHARACTERS):
        presence = 1 + best.index(index) if index in best else 0
        worn = clothes[index] if presence else int(scene[index]) % len(OUTFITS)
        row.append(presence * len(OUTFITS) + worn)
    row += [int(logits[name].argmax()) for name in ("motion", "level", "place", "night", "position")]
    unknown = [word for word, mark in zip(words, out[-1][0].tolist(), strict=True) if mark > 0]
    return np.array(row, np.int64), unknown


def _score(people: np.ndarray[Any, np.dtype[np.float32]], pair: tuple[int, int | None]) -> float:
    total = float(people[:, 0].sum())
    for place, index in enumerate(pair):
        if index is not None:
            total += float(people[index, 1 + place] - people[index, 0])
    return total


def labels_of(row: Sequence[int]) -> dict[str, Any]:
    """The numbers of a scene as the labels of an evaluation file."""
    size = len(OUTFITS)
    seen = sorted(
        (value // size, name, OUTFITS[value % size])
        for value, name in zip(row, CHARACTERS, strict=False)
        if value // size
    )
    motion, level, place, night, _ = row[len(CHARACTERS) :]
    return {
        "who": [name for _, name, _ in seen],
        "outfits": [outfit for _, _, outfit in seen],
        "motion": MOTIONS[motion],
        "level": level + 1,
        "place": PLACES[place],
        "night": bool(night),
    }


def judge(line: Line, got: Mapping[str, Any]) -> dict[str, bool]:
    """Which of the line's labels are read right. Levels may be one off; the order of people does not count."""
    right: dict[str, bool] = {}
    for field in FIELDS:
        if field not in line:
            continue
        if field == "who":
            right[field] = sorted(line["who"]) == sorted(got["who"])
        elif field == "outfits":
            asked = dict(zip(line["who"], line["outfits"], strict=True))
            right[field] = asked == dict(zip(got["who"], got["outfits"], strict=True))
        elif field == "level":
            right[field] = abs(line["level"] - got["level"]) <= 1
        else:
            right[field] = line[field] == got[field]
    return right


def evaluate(reader: Reader, path: Path) -> dict[str, Any]:
    """Shares of a file's turns that are read right, each game played from its start with the reader's own scenes."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    counts: dict[str, list[bool]] = {field: [] for field in (*FIELDS, "all_right", "first", "later")}
    wrong = []
    scene = no_scene()
    game = None
    for line in lines:
        if line["game"] != game:
            game, scene = line["game"], no_scene()
        scene, unknown = read(reader, line["say"], scene)
        got = labels_of(scene.tolist())
        right = judge(line, got)
        whole = all(right[field] for field in ("who", "motion", "place", "night") if field in right)
        for field, value in right.items():
            counts[field].append(value)
        counts["all_right"].append(whole)
        counts["first" if line["turn"] == 1 else "later"].append(whole)
        if not all(right.values()):
            bad = {field: (line[field], got[field]) for field, value in right.items() if not value}
            wrong.append(
                {"game": line["game"], "turn": line["turn"], "say": line["say"], "wrong": bad, "unknown": unknown}
            )
    shares = {field: round(float(np.mean(values)), 4) for field, values in counts.items() if values}
    return {**shares, "wrong": wrong}
