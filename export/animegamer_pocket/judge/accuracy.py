"""The judge's accuracy: on held-out renders, on damaged ones, on generated clips, and on hand-labelled clips.

The hand-labelled clips were generated from games of the development set: benchmarks/judge holds their judged frames, a
row of nine per clip, and a line of labels per row.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from animegamer_export.evaluate.metrics import share
from animegamer_pocket.world.scene import CHARACTERS, HEIGHT, WIDTH
from animegamer_rt.errors import ConfigError

from .damage import Example, Material, Mixer
from .reading import SEEN_FRAMES, Judge, Reading
from .shown import Frames, Shown

Shares = dict[str, float | int | None]


def damaged_figures(judge: Judge, material: Material) -> Shares:
    """How many damaged and doubled clips are detected, and how many of the same clips undamaged are flagged."""
    mixer, rows = Mixer(material, seed=3), range(len(material.shown))
    doubled = [mixer.pasted(row, same=True) for row in rows]
    doubled = [one for one in doubled if _most(one.shown) > 1]
    smeared = [mixer.damaged(row) for row in rows]
    plain = [one for one in (mixer.plain(row) for row in rows) if one.shown.smeared is False]
    return {
        "doubled_clips": len(doubled),
        "doubled_noticed": share([reading.doubled for reading in _read(judge, doubled)]),
        "smeared_clips": len(smeared),
        "smeared_noticed": share([reading.smeared or reading.doubled for reading in _read(judge, smeared)]),
        "undamaged_clips": len(plain),
        "undamaged_suspected": share([not reading.one_of_each for reading in _read(judge, plain)]),
    }


def content_figures(judge: Judge, material: Material) -> Shares:
    """The share of clips of known content that are read right. A bundle's drawing errors count against the judge.

    Excludes clips generated from a blend of two scenes, whose content is ambiguous.
    """
    read = zip(judge.read_seen(material.frames), material.shown, strict=True)
    pairs = [(reading, shown) for reading, shown in read if shown.smeared is not True]
    alone = [(reading, shown) for reading, shown in pairs if _most(shown) == 1]
    starts = [
        abs(reading.positions[figure.name][0] - figure.start_x)
        for reading, shown in alone
        for figure in shown.figures
        if figure.name in reading.positions
    ]
    return {
        "clips": len(pairs),
        "counts": share([_counts(reading) == _true_counts(shown) for reading, shown in pairs]),
        "place": share([reading.place == shown.place for reading, shown in pairs]),
        "night": share([reading.night == shown.night for reading, shown in pairs]),
        "motion": share([reading.motion == shown.motion for reading, shown in pairs]),
        "level": share([reading.level == shown.level for reading, shown in pairs]),
        "level_within_one": share([abs(reading.level - (shown.level or 0)) <= 1 for reading, shown in pairs]),
        "outfits": share(
            [reading.outfits == {figure.name: figure.outfit for figure in shown.figures} for reading, shown in alone]
        ),
        "position_error_px": round(float(np.mean(starts)), 2) if starts else None,
    }


def hand_figures(judge: Judge, folder: Path) -> Shares:
    """Accuracy on hand-labelled clips (clips.jpg, labels.jsonl). Raises ConfigError if they are unreadable."""
    frames, labels = read_hand(folder)
    readings = judge.read_seen(frames)
    found: Shares = {"clips": len(labels)}
    pairs = list(zip(readings, labels, strict=True))
    counts = [(r, true) for r, true in pairs if "counts" in true]
    found["counts"] = share([_counts(r) == true["counts"] for r, true in counts])
    found["one_of_each"] = share([r.one_of_each == true["one_of_each"] for r, true in pairs])
    bad = [r for r, true in pairs if not true["one_of_each"]]
    good = [r for r, true in pairs if true["one_of_each"]]
    found["bad_clips"], found["bad_noticed"] = len(bad), share([not r.one_of_each for r in bad])
    found["good_clips"], found["good_suspected"] = len(good), share([not r.one_of_each for r in good])
    for name in ("place", "night", "motion"):
        found[name] = share([getattr(r, name) == true[name] for r, true in pairs if name in true])
    return found


def read_hand(folder: Path) -> tuple[Frames, list[dict[str, Any]]]:
    """The hand-labelled clips, uint8 [N, 9, 48, 72, 3], and their labels. Raises ConfigError."""
    picture = cv2.imread(str(folder / "clips.jpg"))
    try:
        lines = (folder / "labels.jsonl").read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError("no labels", where=folder / "labels.jsonl", found=error.strerror) from error
    if picture is None or picture.shape[0] != len(lines) * HEIGHT // 2:
        found = "no picture" if picture is None else f"{picture.shape[0]} px of height"
        expected = f"{len(lines)} rows of {HEIGHT // 2} px"
        raise ConfigError("no clips", where=folder / "clips.jpg", found=found, expected=expected)
    strips = picture[..., ::-1].reshape(len(lines), HEIGHT // 2, len(SEEN_FRAMES), WIDTH // 2, 3)
    return np.ascontiguousarray(strips.transpose(0, 2, 1, 3, 4)), [json.loads(line) for line in lines]


def _read(judge: Judge, examples: Sequence[Example]) -> list[Reading]:
    frames = [np.clip(np.rint(one.frames), 0, 255).astype(np.uint8) for one in examples]
    return judge.read_seen(np.stack(frames)) if frames else []


def _counts(reading: Reading) -> dict[str, int]:
    return {name: count for name, count in reading.counts.items() if count}


def _true_counts(shown: Shown) -> dict[str, int]:
    names = [figure.name for figure in shown.figures]
    return {name: min(2, names.count(name)) for name in CHARACTERS if name in names}


def _most(shown: Shown) -> int:
    return max(_true_counts(shown).values(), default=0)
