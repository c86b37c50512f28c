"""Many rendered clips, in memory or in a folder.

The folder holds clips.npy (uint8 [N, T, 96, 144, 3]) and scenes.jsonl (one scene with its caption per line).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .captions import caption
from .render import render
from .scene import FRAMES, HEIGHT, WIDTH, Scene


def render_many(scenes: Sequence[Scene]) -> npt.NDArray[np.uint8]:
    """Renders scenes: uint8 [N, 17, 96, 144, 3], 0.7 MB per clip."""
    clips = np.empty((len(scenes), FRAMES, HEIGHT, WIDTH, 3), np.uint8)
    for index, clip in enumerate(map(render, scenes)):
        clips[index] = clip
    return clips


def write(scenes: Sequence[Scene], folder: Path, frames: int = FRAMES) -> None:
    """Renders the first `frames` frames of scenes into folder/clips.npy and folder/scenes.jsonl."""
    folder.mkdir(parents=True, exist_ok=True)
    shape = (len(scenes), frames, HEIGHT, WIDTH, 3)
    clips = np.lib.format.open_memmap(folder / "clips.npy", mode="w+", dtype=np.uint8, shape=shape)
    for index, scene in enumerate(scenes):
        clips[index] = render(scene, frames)
    clips.flush()
    lines = [json.dumps({**dataclasses.asdict(scene), "caption": caption(scene)}) for scene in scenes]
    (folder / "scenes.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def read(folder: Path) -> tuple[npt.NDArray[np.uint8], list[Scene]]:
    """Reads the clips, memory-mapped and read-only, and the scenes of `write`."""
    clips: npt.NDArray[np.uint8] = np.load(folder / "clips.npy", mmap_mode="r")
    return clips, [_scene(line) for line in (folder / "scenes.jsonl").read_text(encoding="utf-8").splitlines()]


def _scene(line: str) -> Scene:
    fields = json.loads(line)
    del fields["caption"]
    fields["characters"], fields["outfits"] = tuple(fields["characters"]), tuple(fields["outfits"])
    return Scene(**fields)
