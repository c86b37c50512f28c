"""Labels and masks of clips of known content, for training the judge.

Clips are kept at half size, uint8 [17, 48, 72, 3], the judge's input size.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from animegamer_pocket.world.drawing import downsample
from animegamer_pocket.world.places import paint_place
from animegamer_pocket.world.render import render
from animegamer_pocket.world.scene import PAIR_SPACING_PX, Scene

from .reading import halve

Frames = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

_DIFFERS = 14  # of 255, summed over channels: the least difference from the empty background of a figure's pixel


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """One figure in a clip: character, outfit, and its x in the first and the last frame, px of the picture."""

    name: str
    outfit: str
    start_x: float
    end_x: float


@dataclasses.dataclass(frozen=True, slots=True)
class Shown:
    """The content of a clip. motion, level: None if its figures differ in them. smeared: None if unknown."""

    figures: tuple[Figure, ...]
    place: str
    night: bool
    motion: str | None
    level: int | None
    smeared: bool | None = False

    @classmethod
    def of(cls, scene: Scene) -> Shown:
        """The content of a scene's rendered clip."""
        apart = (-PAIR_SPACING_PX / 2, PAIR_SPACING_PX / 2) if scene.is_pair else (0.0,)
        figures = tuple(
            Figure(name, outfit, scene.start_x + offset, scene.end_x + offset)
            for name, outfit, offset in zip(scene.characters, scene.outfits, apart, strict=True)
        )
        return cls(figures, scene.place, scene.night, scene.motion, scene.level)


@functools.lru_cache(maxsize=32)
def empty_place(place: str, night: bool) -> Frames:
    """The place without figures at half size: uint8 [48, 72, 3]."""
    background: Frames = halve(downsample(paint_place(place, night))[None])[0]
    return background


def figure_mask(frames: Frames, place: str, night: bool) -> Mask:
    """Where a rendered clip differs from its empty place: bool [T, 48, 72]."""
    background = empty_place(place, night).astype(np.int16)
    mask: Mask = np.abs(frames.astype(np.int16) - background).sum(axis=3) > _DIFFERS
    return mask


def render_half(scenes: Sequence[Scene]) -> Frames:
    """The scenes' rendered clips at half size: uint8 [N, 17, 48, 72, 3]."""
    return np.stack([halve(render(scene)) for scene in scenes])
