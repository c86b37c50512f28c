"""A character's style, and a canvas in the body's own coordinates."""

from __future__ import annotations

import dataclasses
import math
from functools import lru_cache

import numpy as np

from .drawing import Canvas, Color, Points, fill, shade, stroke

RAINCOAT: Color = (255, 208, 48)
PARTY: Color = (222, 52, 84)
WHITE: Color = (255, 255, 252)
DARK: Color = (52, 34, 62)


@dataclasses.dataclass(frozen=True, slots=True)
class CharacterStyle:
    """A character's colours, its everyday garment (dress, shirt, robe, box or vest) and its size."""

    skin: Color
    hair: Color
    top: Color
    legs: Color
    shoes: Color
    eyes: Color
    garment: str
    size: float = 1.0


STYLES = {
    "Mirel": CharacterStyle(
        (255, 226, 204), (250, 110, 160), (84, 160, 240), (255, 226, 204), (250, 250, 255), (60, 90, 190), "dress"
    ),
    "Dovan": CharacterStyle(
        (240, 194, 152), (64, 86, 186), (50, 176, 104), (84, 92, 130), (250, 140, 60), (40, 110, 90), "shirt"
    ),
    "Zelki": CharacterStyle(
        (255, 232, 216), (60, 190, 150), (128, 72, 196), (90, 60, 130), (60, 40, 90), (120, 50, 160), "robe", 0.94
    ),
    "Bixo": CharacterStyle(
        (196, 216, 232), (196, 216, 232), (90, 140, 170), (120, 140, 160), (80, 96, 120), (20, 190, 210), "box"
    ),
    "Tofi": CharacterStyle(
        (250, 150, 62), (250, 150, 62), (58, 120, 200), (196, 100, 44), (120, 64, 40), (70, 44, 30), "vest"
    ),
}

_NIGHT = np.array([0.90, 0.90, 0.98])


class Body:
    """Draws in body coordinates: x to the front, y down, the hip at (0, 0), px at scale 1."""

    def __init__(self, canvas: Canvas, night: bool, scale: float) -> None:
        self.canvas, self.night, self.scale = canvas, night, scale
        self.matrix = np.eye(3)

    def color(self, day: Color) -> Color:
        return _night_color(day) if self.night else day

    def place(self, points: Points) -> Points:
        placed: Points = points @ self.matrix[:2, :2].T + self.matrix[:2, 2]
        return placed

    def shape(self, points: Points, color: Color, outlined: bool = True) -> None:
        tint = self.color(color)
        fill(self.canvas, self.place(points), tint, shade(tint, 0.58) if outlined else None, 0.9 * self.scale)

    def line(self, points: list[tuple[float, float]], color: Color, width: float, outlined: bool = True) -> None:
        tint, placed = self.color(color), self.place(np.asarray(points))
        outline = shade(tint, 0.58) if outlined else None
        stroke(self.canvas, placed, tint, width * self.scale, outline, 0.9 * self.scale)


@lru_cache(maxsize=256)
def _night_color(color: Color) -> Color:
    red, green, blue = (np.asarray(color) * _NIGHT).round().astype(int).tolist()
    return (red, green, blue)


def rotation(angle: float, x: float = 0.0, y: float = 0.0) -> Points:
    """A 3 x 3 matrix: rotate about (0, 0), then translate to (x, y). A positive angle moves the head to the front."""
    cosine, sine = math.cos(angle), math.sin(angle)
    return np.array([[cosine, -sine, x], [sine, cosine, y], [0.0, 0.0, 1.0]])
