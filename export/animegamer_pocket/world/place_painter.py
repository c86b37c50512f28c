"""Paints the picture of a place, by day or by night."""

from __future__ import annotations

import math

import numpy as np

from .drawing import SCALE, Canvas, Color, ellipse, fill, gradient, mix, smooth
from .scene import HEIGHT, WIDTH

_NIGHT_LIGHT, _NIGHT_GLOW = (0.36, 0.42, 0.60), (14, 14, 34)
"""By night a colour is multiplied by the first and added to the second: dark and blue, with its hue still visible."""


def _night_color(day: Color) -> Color:
    red, green, blue = (round(c * m + g) for c, m, g in zip(day, _NIGHT_LIGHT, _NIGHT_GLOW, strict=True))
    return (red, green, blue)


class PlacePainter:
    """A canvas and its drawing methods. By night colours are darker and bluer."""

    def __init__(self, night: bool) -> None:
        self.canvas: Canvas = np.zeros((HEIGHT * SCALE, WIDTH * SCALE, 3), np.uint8)
        self.night = night

    def color(self, day: Color) -> Color:
        return _night_color(day) if self.night else day

    def band(self, top: Color, bottom: Color, first_y: float, last_y: float) -> None:
        gradient(self.canvas, self.color(top), self.color(bottom), first_y, last_y)

    def ellipse(self, x: float, y: float, radius_x: float, radius_y: float, color: Color) -> None:
        fill(self.canvas, ellipse(x, y, radius_x, radius_y, 48), self.color(color))

    def shape(self, corners: tuple[tuple[float, float], ...], color: Color, rounds: int = 2) -> None:
        fill(self.canvas, smooth(corners, rounds), self.color(color))

    def box(self, x0: float, y0: float, x1: float, y1: float, color: Color) -> None:
        fill(self.canvas, smooth(((x0, y0), (x1, y0), (x1, y1), (x0, y1)), 0), self.color(color))

    def glow(self, x: float, y: float, radius_x: float, radius_y: float, color: Color) -> None:
        """A glowing ellipse, with the same colour by night."""
        fill(self.canvas, ellipse(x, y, radius_x, radius_y, 32), color)

    def sky(self, top: Color = (126, 190, 250), bottom: Color = (222, 240, 255)) -> None:
        """A gradient with a sun by day, and with a moon and stars by night."""
        if not self.night:
            gradient(self.canvas, top, bottom, 0, HEIGHT)
            self.glow(123, 15, 11, 11, mix(top, (255, 240, 150), 0.45))
            self.glow(123, 15, 8, 8, (255, 236, 130))
            return
        gradient(self.canvas, mix((18, 22, 70), top, 0.06), mix((66, 70, 140), bottom, 0.08), 0, HEIGHT)
        for x, y, size in ((14, 12, 2.6), (38, 24, 2.0), (60, 9, 2.4), (88, 20, 2.2), (104, 8, 1.8)):
            self.star(x, y, size)
        self.glow(123, 15, 9, 9, (252, 244, 200))
        self.glow(119, 13, 7.5, 7.5, (32, 36, 90))

    def star(self, x: float, y: float, size: float) -> None:
        corners = []
        for corner in range(8):
            turn, reach = corner * math.pi / 4, size * (1.3 if corner % 2 == 0 else 0.55)
            corners.append((x + reach * math.cos(turn), y + reach * math.sin(turn)))
        fill(self.canvas, smooth(tuple(corners), 1), (240, 236, 190))

    def cloud(self, x: float, y: float, size: float, color: Color) -> None:
        for dx, dy, radius in ((-1.1, 0.2, 0.6), (-0.4, -0.25, 0.8), (0.45, -0.1, 0.75), (1.1, 0.22, 0.55)):
            self.ellipse(x + dx * size, y + dy * size, radius * size * 1.15, radius * size * 0.75, color)
