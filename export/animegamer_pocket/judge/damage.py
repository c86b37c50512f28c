"""Examples for the judge: clips of known content, copied onto each other or damaged as a generated clip may be.

Of a clip's figures only the masks are known. A figure is moved by moving its mask with its pixels, and removed by the
empty place. What a damage leaves unclear (is half a fox one fox?) is IGNORED and teaches nothing.
"""

from __future__ import annotations

import dataclasses
import random
from collections import defaultdict
from collections.abc import Callable, Sequence

import cv2
import numpy as np
import numpy.typing as npt

from animegamer_pocket.world.scene import CHARACTERS, WIDTH

from .shown import Figure, Frames, Mask, Shown, empty_place

IGNORED = -100
PLAIN_SHARE, PASTED_SHARE = 0.42, 0.3  # the rest is damaged
_GROUPS = ((False, False, 0.45), (True, False, 0.37), (True, True, 0.18))  # drawn, smeared, share of the examples
_SAME_SHARE = 0.55  # of pasted figures are second copies of one that is there
_MOST_OVERLAP = 0.35  # of the smaller figure's pixels that a pasted one may cover
_EDGE_PX = 14  # a moved figure stays this far from the picture's sides

FloatFrames = npt.NDArray[np.float32]


@dataclasses.dataclass(frozen=True, slots=True)
class Material:
    """Clips to make examples of: seen frames uint8 [N, 9, 48, 72, 3], figures' masks bool [N, 9, 48, 72], contents.

    drawn: by a bundle; else rendered. Masks of drawn clips are those of their renders, widened.
    """

    frames: Frames
    masks: Mask
    shown: Sequence[Shown]
    drawn: npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, slots=True)
class Example:
    """Frames float32 [9, 48, 72, 3], 0..255, and what they show. unsure: characters that may or may not count."""

    frames: FloatFrames
    shown: Shown
    drawn: bool
    unsure: frozenset[str] = frozenset()


class Mixer:
    """Makes random examples of material. The same seed gives the same examples."""

    def __init__(self, material: Material, seed: int) -> None:
        self._material, self._rng = material, random.Random(seed)
        self._singles: dict[tuple[str, bool, bool], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for row, shown in enumerate(material.shown):
            if len(shown.figures) == 1 and not shown.smeared:
                key = shown.place, shown.night, bool(material.drawn[row])
                self._singles[key][shown.figures[0].name].append(row)
        self._groups: list[tuple[list[int], float]] = []
        for drawn, smeared, share in _GROUPS:
            rows = [
                row
                for row, shown in enumerate(material.shown)
                if material.drawn[row] == drawn and (shown.smeared is True) == smeared
            ]
            self._groups += [(rows, share)] if rows else []
        self._damages: tuple[Callable[[int], Example], ...] = (
            self._ghost,
            self._ghost,
            self._half_there,
            self._cut,
            self._two_motions,
            self._chimera,
            self._blurred,
            self._vanishing,
        )

    def example(self) -> Example:
        """A random example of any kind."""
        (rows,) = self._rng.choices([rows for rows, _ in self._groups], [share for _, share in self._groups])
        row, kind = self._rng.choice(rows), self._rng.random()
        if kind < PLAIN_SHARE or self._material.shown[row].smeared:
            return self.plain(row)
        if kind < PLAIN_SHARE + PASTED_SHARE:
            return self.pasted(row)
        return self.damaged(row)

    def plain(self, row: int) -> Example:
        """The clip as it is."""
        material, shown = self._material, self._material.shown[row]
        unsure = self._names(shown) if shown.smeared else frozenset()
        return Example(material.frames[row].astype(np.float32), shown, bool(material.drawn[row]), unsure)

    def pasted(self, row: int, same: bool | None = None) -> Example:
        """The clip with one figure more, often a second copy of one that is there; as it is if there is no room."""
        found = self._second(row, self._rng.random() < _SAME_SHARE if same is None else same)
        if found is None:
            return self.plain(row)
        frames, mask, figure, other = found
        base = self.plain(row)
        mixed = _over(base.frames, frames, _soft(mask))
        return dataclasses.replace(base, frames=mixed, shown=_joined(base.shown, figure, other))

    def damaged(self, row: int) -> Example:
        """The clip with a figure that is smeared in one of seven ways."""
        example = self._rng.choice(self._damages)(row)
        return dataclasses.replace(example, shown=dataclasses.replace(example.shown, smeared=True))

    def _figure(self, row: int, dx: int, mirrored: bool) -> tuple[FloatFrames, Mask, Figure]:
        """A clip with a single figure, moved by 2 * dx px of the picture after it was mirrored or not."""
        frames, mask = self._material.frames[row].astype(np.float32), self._material.masks[row]
        figure = self._material.shown[row].figures[0]
        start, end = figure.start_x, figure.end_x
        if mirrored:
            frames, mask, start, end = frames[:, :, ::-1], mask[:, :, ::-1], WIDTH - start, WIDTH - end
        moved = np.zeros_like(mask)
        low, high = max(0, dx), min(mask.shape[2], mask.shape[2] + dx)
        moved[:, :, low:high] = mask[:, :, low - dx : high - dx]
        return np.roll(frames, dx, axis=2), moved, Figure(figure.name, figure.outfit, start + 2 * dx, end + 2 * dx)

    def _second(self, row: int, same: bool) -> tuple[FloatFrames, Mask, Figure, Shown] | None:
        """Another figure with room beside those of a clip: its frames, mask and content."""
        shown, rng = self._material.shown[row], self._rng
        if not shown.figures:
            return None
        present = [figure.name for figure in shown.figures]
        name = rng.choice(present) if same else rng.choice([name for name in CHARACTERS if name not in present])
        for _ in range(6):
            if same and len(present) == 1 and rng.random() < 0.5:
                other = row
            else:
                choices = self._singles[shown.place, shown.night, bool(self._material.drawn[row])][name]
                if not choices:
                    return None
                other = max((rng.choice(choices) for _ in range(4)), key=lambda c: self._likeness(row, c))
            frames, mask, figure = self._figure(other, rng.randint(-44, 44), rng.random() < 0.4)
            if not all(_EDGE_PX <= x <= WIDTH - _EDGE_PX for x in (figure.start_x, figure.end_x)):
                continue
            if self._overlap(row, mask) < _MOST_OVERLAP:
                return frames, mask, figure, self._material.shown[other]
        return None

    def _likeness(self, row: int, other: int) -> int:
        one, two = self._material.shown[row], self._material.shown[other]
        return 2 * (one.motion == two.motion) + (one.level == two.level)

    def _overlap(self, row: int, mask: Mask) -> float:
        there = self._material.masks[row]
        smaller = min(int(mask.sum()), int(there.sum()) // max(1, len(self._material.shown[row].figures)))
        return float((there & mask).sum()) / max(1, smaller)

    def _aligned(self, row: int, same: bool) -> tuple[FloatFrames, Mask, Shown] | None:
        """A single figure of another clip, moved to where this clip's first figure is."""
        shown, rng = self._material.shown[row], self._rng
        if not shown.figures:
            return None
        first = shown.figures[0]
        singles = self._singles[shown.place, shown.night, bool(self._material.drawn[row])]
        name = first.name if same else rng.choice([name for name in CHARACTERS if name != first.name])
        choices = [c for c in singles[name] if not same or self._material.shown[c].motion != shown.motion]
        if not choices:
            return None
        other = rng.choice(choices)
        figure = self._material.shown[other].figures[0]
        away = (first.start_x + first.end_x - figure.start_x - figure.end_x) / 2
        frames, mask, _ = self._figure(other, round(away / 2) + rng.randint(-3, 3), False)
        return frames, mask, self._material.shown[other]

    def _names(self, *contents: Shown) -> frozenset[str]:
        return frozenset(figure.name for shown in contents for figure in shown.figures)

    def _background(self, row: int) -> FloatFrames:
        shown = self._material.shown[row]
        return np.broadcast_to(
            empty_place(shown.place, shown.night).astype(np.float32), self._material.frames[row].shape
        )

    def _ghost(self, row: int) -> Example:
        """A further figure that shines through, or is there for a part of the time."""
        found, base = self._second(row, self._rng.random() < 0.6), self.plain(row)
        if found is None:
            return self._half_there(row)
        frames, mask, figure, _ = found
        weight = _soft(mask)
        if self._rng.random() < 0.7:
            weight = weight * self._rng.uniform(0.3, 0.65)
        else:
            weight = weight * self._some_frames(len(frames))
        return dataclasses.replace(base, frames=_over(base.frames, frames, weight), unsure=frozenset({figure.name}))

    def _some_frames(self, count: int) -> FloatFrames:
        """1 for the first or the last third to two thirds of the frames, else 0: float32 [T, 1, 1, 1]."""
        share = self._rng.randint(count // 3, 2 * count // 3)
        first = np.arange(count) < share
        return (first if self._rng.random() < 0.5 else ~first).astype(np.float32)[:, None, None, None]

    def _half_there(self, row: int) -> Example:
        base, mask = self.plain(row), _wider(self._material.masks[row])
        weight = _soft(mask) * self._rng.uniform(0.35, 0.7)
        frames = _over(base.frames, self._background(row), weight)
        return dataclasses.replace(base, frames=frames, unsure=self._names(base.shown))

    def _cut(self, row: int) -> Example:
        """One half of a figure is missing: above, below, left or right."""
        base, mask = self.plain(row), _wider(self._material.masks[row])
        removed: Mask = np.zeros(mask.shape, np.bool_)
        if base.shown.figures and mask.any():
            figure = self._rng.choice(base.shown.figures)
            middle_x = np.linspace(figure.start_x, figure.end_x, len(mask)) / 2
            side, lower = self._rng.random() < 0.5, self._rng.random() < 0.5
            ys = np.nonzero(mask.any(axis=(0, 2)))[0]
            middle_y = int(ys[0] * 0.45 + ys[-1] * 0.55)
            for frame, x in enumerate(middle_x):
                low, high = max(0, round(x) - 18), round(x) + 18
                box = (slice(None), slice(round(x), high) if lower else slice(low, round(x)))
                if not side:
                    box = (slice(middle_y, None) if lower else slice(0, middle_y), slice(low, high))
                removed[(frame, *box)] = True
        frames = _over(base.frames, self._background(row), _soft(mask & removed))
        return dataclasses.replace(base, frames=frames, unsure=self._names(base.shown))

    def _two_motions(self, row: int) -> Example:
        """Two motions of one character at once."""
        found, base = self._aligned(row, same=True), self.plain(row)
        if found is None:
            return self._half_there(row)
        frames, mask, other = found
        near = np.broadcast_to(np.any(mask, axis=(0, 1), keepdims=True), mask.shape)  # not the other one of a pair
        weight = _soft(mask | (self._material.masks[row] & near)) * self._rng.uniform(0.4, 0.6)
        shown = dataclasses.replace(base.shown, motion=None, level=None)
        mixed = _over(base.frames, frames, weight)
        return dataclasses.replace(base, frames=mixed, shown=shown, unsure=self._names(other))

    def _chimera(self, row: int) -> Example:
        """One figure of two characters: blended, or the head of one on the legs of the other."""
        found, base = self._aligned(row, same=False), self.plain(row)
        if found is None:
            return self._half_there(row)
        frames, mask, other = found
        weight = _soft(mask)
        if self._rng.random() < 0.6:
            weight = weight * self._rng.uniform(0.4, 0.65)
        else:
            ys = np.nonzero(mask.any(axis=(0, 2)))[0]
            middle = int(ys.mean()) if len(ys) else 24
            weight[:, middle:] = 0
        mixed = _over(base.frames, frames, weight)
        return dataclasses.replace(base, frames=mixed, unsure=self._names(base.shown, other))

    def _blurred(self, row: int) -> Example:
        """The figures are blurred away sideways."""
        base, mask = self.plain(row), self._material.masks[row]
        width = self._rng.choice((9, 13, 17, 21))
        blurred = np.stack([cv2.blur(frame, (width, self._rng.choice((1, 3, 5)))) for frame in base.frames])
        unsure = self._names(base.shown) if width > 13 else frozenset()
        return dataclasses.replace(base, frames=_over(base.frames, blurred, _soft(_wider(mask, 9))), unsure=unsure)

    def _vanishing(self, row: int) -> Example:
        """The figures are there for a part of the time."""
        base = self.plain(row)
        weight = _soft(_wider(self._material.masks[row])) * self._some_frames(len(base.frames))
        frames = _over(base.frames, self._background(row), weight)
        return dataclasses.replace(base, frames=frames, unsure=self._names(base.shown))


def _wider(mask: Mask, width: int = 3) -> Mask:
    """A mask that reaches (width - 1) / 2 pixels further to each side, and one up and down."""
    kernel = np.ones((3, width), np.uint8)
    return np.stack([cv2.dilate(frame.astype(np.uint8), kernel) > 0 for frame in mask])


def _soft(mask: Mask) -> FloatFrames:
    """A mask with soft edges: float32 [T, 48, 72, 1]."""
    return np.stack([cv2.blur(frame.astype(np.float32), (3, 3)) for frame in mask])[..., None]


def _over(base: FloatFrames, other: FloatFrames, weight: FloatFrames) -> FloatFrames:
    mixed: FloatFrames = base + weight * (other - base)
    return mixed


def _joined(shown: Shown, figure: Figure, other: Shown) -> Shown:
    """The content of a clip with a figure of another one."""
    return dataclasses.replace(
        shown,
        figures=(*shown.figures, figure),
        motion=shown.motion if shown.motion == other.motion else None,
        level=shown.level if shown.level == other.level else None,
    )
