"""Measures a reader's accuracy on labelled files."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from animegamer_rt.backends.interface import FloatArray, IntArray, ReaderEngine, ReaderLogits
from animegamer_rt.backends.onnxruntime.loader import load_reader
from animegamer_rt.bundle.language_file import read_language
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.errors import InstructionError
from animegamer_rt.stages.reader import InstructionReader
from animegamer_rt.state.game import Instruction, Scene

from .export import LANGUAGE, WORDS
from .model import SCENE_NUMBERS, Reader

FIELDS = ("who", "motion", "place", "not_place", "night", "outfits", "level", "notice")

NOBODY: Mapping[str, Any] = dict.fromkeys(("motion", "place", "night"), None) | {"who": [], "outfits": [], "level": 0}
"""The labels of a game whose first turn was refused."""

Line = Mapping[str, Any]


class TrainedReader:
    """Trained weights as the engine of an `InstructionReader`."""

    scene_numbers = SCENE_NUMBERS

    def __init__(self, network: Reader) -> None:
        self._network = network

    def read(self, features: IntArray, scene: IntArray) -> ReaderLogits:
        """The logits of one instruction: features i64 [1, words, pieces], scene i64 [1, SCENE_NUMBERS]."""
        with torch.no_grad():
            logits: list[FloatArray] = [
                part[0].float().numpy() for part in self._network(torch.from_numpy(features), torch.from_numpy(scene))
            ]
        return ReaderLogits(*logits)


def reader_of(engine: ReaderEngine, vocabulary: str) -> InstructionReader:
    """An engine with pocket's words and language. vocabulary: see `samples.vocabulary`."""
    words = replace(WORDS, vocabulary=vocabulary)
    return InstructionReader(engine, None, words, read_language(LANGUAGE), "pocket")


def bundle_reader(bundle: Bundle) -> InstructionReader:
    """The reader of a bundle, with its own words. Raises BackendError like `load_reader`."""
    return InstructionReader.from_bundle(bundle, load_reader(bundle))


def labels_of(scene: Scene) -> dict[str, Any]:
    """A scene as the labels of an evaluation file."""
    return {
        "who": list(scene.people),
        "outfits": [scene.clothes[name] for name in scene.people],
        "motion": scene.motion,
        "level": scene.level,
        "place": scene.place,
        "night": scene.hour == "night",
    }


def judge(line: Line, got: Mapping[str, Any]) -> dict[str, bool]:
    """Which of the line's labels are read right. Levels may be one off; the order of people does not matter."""
    right: dict[str, bool] = {}
    for field in FIELDS:
        if field not in line:
            continue
        if field == "who":
            right[field] = sorted(line["who"]) == sorted(got["who"])
        elif field == "not_place":
            right[field] = line[field] != got["place"]
        elif field == "outfits":
            asked = dict(zip(line["who"], line["outfits"], strict=True))
            right[field] = asked == dict(zip(got["who"], got["outfits"], strict=True))
        elif field == "level":
            right[field] = abs(line["level"] - got["level"]) <= 1
        else:
            right[field] = line[field] == got[field]
    return right


def evaluate(reader: InstructionReader, path: Path) -> dict[str, Any]:
    """Accuracy on a file's turns, each game played from its start with the reader's own scenes.

    ms_median: processor time per turn, which is insensitive to other programs. silent: the share of misread turns
    (people, motion, place, hour or clothes) without a notice. alarms: the share of the other turns with a notice that
    their label does not ask for. wrong: the wrong turns, with label and reading. A refused turn leaves the
    scene as it was (one that undoes takes back the last), and `refused` says why.
    """
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    counts: dict[str, list[bool]] = {field: [] for field in ("all_right", "first", "later", *FIELDS)}
    wrong, seconds = [], []
    silent, alarms = list[bool](), list[bool]()
    scene: Scene | None = None
    earlier: Scene | None = None
    game = None
    for line in lines:
        if line["game"] != game:
            game, scene, earlier = line["game"], None, None
        started = time.process_time()
        refused, unknown_words = "", tuple[str, ...]()
        try:
            reading = reader.read(Instruction.parse(line["say"]), scene, earlier)
            got = {**labels_of(reading.scene), "notice": reading.notice is not None}
            (scene, earlier), unknown_words = (reading.scene, scene), reading.unknown
        except InstructionError as error:
            if error.code == "undo":
                scene = earlier or scene
            refused = f"{path.name}, game {line['game']}: {error}"
            got = {**(NOBODY if scene is None else labels_of(scene)), "notice": error.code != "undo"}
        seconds.append(time.process_time() - started)
        right = judge(line, got)
        whole = all(right.get(field, True) for field in ("who", "motion", "place", "not_place", "night"))
        if not (whole and right.get("outfits", True)):
            silent.append(not got["notice"])
        elif not line.get("notice", False):
            alarms.append(bool(got["notice"]))
        for field, value in right.items():
            counts[field].append(value)
        counts["all_right"].append(whole)
        counts["first" if line["turn"] == 1 else "later"].append(whole)
        if not all(right.values()):
            bad = {field: (line[field], got.get(field, got["place"])) for field, value in right.items() if not value}
            unknown: dict[str, Any] = {"unknown": list(unknown_words)} if unknown_words else {}
            unknown |= {"refused": refused} if refused else {}
            wrong.append({"game": line["game"], "turn": line["turn"], "say": line["say"], "wrong": bad, **unknown})
    shares = {field: round(float(np.mean(values)), 4) for field, values in counts.items() if values}
    shares |= {
        "silent": round(sum(silent) / max(1, len(silent)), 4),
        "alarms": round(sum(alarms) / max(1, len(alarms)), 4),
    }
    ms_median = round(float(np.median(seconds)) * 1e3, 2)
    return {"turns": len(lines), **shares, "misread": len(silent), "ms_median": ms_median, "wrong": wrong}
