"""The eight places of the pocket world, by day and by night.

Pale and low in contrast, with large shapes only, so that characters stand out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from .drawing import SCALE, Canvas, Color, fill, gradient, shade, smooth, stroke
from .place_painter import PlacePainter
from .scene import HEIGHT, WIDTH

GROUND_Y = 85
"""The ground under a character's feet, px from the top."""
_HORIZON = 66


def _meadow(paint: PlacePainter) -> None:
    paint.sky()
    paint.cloud(34, 18, 9, (255, 255, 255))
    paint.ellipse(28, 84, 62, 32, (170, 222, 160))
    paint.ellipse(118, 86, 66, 32, (150, 212, 146))
    paint.band((150, 216, 128), (112, 190, 100), _HORIZON + 6, HEIGHT)
    for x, y, color in (
        (10, 90, (255, 150, 170)),
        (46, 92, (255, 240, 140)),
        (88, 91, (255, 150, 170)),
        (130, 90, (255, 255, 255)),
        (112, 80, (255, 240, 140)),
        (24, 79, (255, 255, 255)),
    ):
        paint.ellipse(x, y, 2.6, 2.0, color)


def _forest(paint: PlacePainter) -> None:
    paint.sky((176, 220, 200), (222, 240, 214))
    for x, height, color in (
        (2, 40, (104, 160, 120)),
        (34, 50, (120, 174, 130)),
        (68, 38, (104, 160, 120)),
        (104, 52, (120, 174, 130)),
        (138, 42, (104, 160, 120)),
    ):
        paint.box(x - 3, 50, x + 3, _HORIZON + 8, (136, 112, 90))
        base = _HORIZON
        for tier in range(3):
            y, half = base - tier * height * 0.27, 19 - tier * 4.5
            top = y - height * 0.45
            paint.shape(((x - half, y), (x, top - 4), (x + half, y), (x, y + 3)), shade(color, 1 + 0.07 * tier), 2)
    paint.band((122, 158, 92), (90, 126, 70), _HORIZON + 5, HEIGHT)


def _beach(paint: PlacePainter) -> None:
    paint.sky((120, 200, 250), (226, 244, 255))
    paint.band((84, 176, 222), (136, 212, 232), 48, _HORIZON + 6)
    paint.band((252, 236, 190), (238, 212, 152), _HORIZON + 4, HEIGHT)
    paint.ellipse(72, _HORIZON + 4, 90, 3.0, (224, 246, 250))
    paint.ellipse(72, _HORIZON + 7, 92, 3.0, (252, 236, 190))
    stroke(paint.canvas, [(14, 80), (15, 60), (19, 42)], paint.color((170, 124, 90)), 5)
    for angle in (-2.9, -2.2, -0.9, -0.2, 0.5):
        x, y = 19 + 17 * math.cos(angle), 44 + 13 * math.sin(angle) + 3
        paint.shape(((19, 38), ((19 + x) / 2, y - 7), (x, y + 4), ((19 + x) / 2, y + 1), (19, 44)), (104, 184, 110), 2)


def _city(paint: PlacePainter) -> None:
    paint.sky((190, 206, 236), (238, 232, 240))
    walls: tuple[Color, ...] = ((186, 186, 208), (212, 184, 184), (180, 198, 212))
    for index, (x, height) in enumerate(((-2, 44), (24, 56), (50, 36), (76, 50), (102, 40), (128, 58))):
        wall = walls[index % 3]
        paint.box(x, _HORIZON + 8 - height, x + 23, _HORIZON + 8, wall)
        for row in range(int(height // 16)):
            for column in (5, 14):
                y = _HORIZON + 13 - height + row * 15
                window: Color = (228, 238, 248)
                if paint.night and (row + column + index) % 3 != 0:
                    fill(
                        paint.canvas,
                        smooth(((x + column, y), (x + column + 5, y), (x + column + 5, y + 7), (x + column, y + 7)), 0),
                        (236, 208, 128),
                    )
                else:
                    paint.box(x + column, y, x + column + 5, y + 7, window)
    paint.band((176, 172, 184), (140, 138, 154), _HORIZON + 8, HEIGHT)
    for x in (4, 44, 84, 124):
        paint.box(x, 90, x + 20, 93, (226, 222, 226))


def _room(paint: PlacePainter) -> None:
    paint.band((250, 228, 214), (244, 214, 200), 0, _HORIZON + 4)
    paint.band((212, 164, 124), (186, 136, 98), _HORIZON + 4, HEIGHT)
    paint.box(0, _HORIZON + 2, WIDTH, _HORIZON + 5, (232, 196, 172))
    paint.box(50, 8, 98, 44, (255, 252, 246))
    _window_view(paint, 53, 11, 95, 41)
    paint.box(72.5, 11, 75.5, 41, (255, 252, 246))
    paint.box(4, 22, 30, _HORIZON + 6, (184, 130, 96))
    for row, colors in enumerate(
        (((226, 120, 120), (130, 170, 220), (240, 206, 120)), ((150, 196, 140), (226, 150, 180), (130, 170, 220)))
    ):
        for column, color in enumerate(colors):
            paint.box(7 + column * 7, 26 + row * 21, 13 + column * 7, 42 + row * 21, color)
    paint.box(120, 50, 138, _HORIZON + 8, (150, 170, 214))
    paint.ellipse(129, 36, 9, 15, (140, 196, 140))
    paint.ellipse(72, 88, 66, 8, (230, 190, 190))


def _window_view(paint: PlacePainter, x0: int, y0: int, x1: int, y1: int) -> None:
    """The view out of the room's window."""
    top, bottom = ((24, 28, 80), (70, 74, 140)) if paint.night else ((140, 200, 250), (220, 240, 255))
    strip: Canvas = np.zeros_like(paint.canvas)
    gradient(strip, top, bottom, y0, y1)
    area = np.s_[y0 * SCALE : y1 * SCALE, x0 * SCALE : x1 * SCALE]
    paint.canvas[area] = strip[area]
    if paint.night:
        paint.glow(86, 20, 4.5, 4.5, (252, 244, 200))


def _snowfield(paint: PlacePainter) -> None:
    paint.sky((176, 206, 240), (236, 242, 252))
    paint.shape(((-20, 76), (30, 16), (80, 76)), (178, 194, 222), 1)
    paint.shape(((60, 78), (106, 26), (156, 78)), (190, 204, 230), 1)
    paint.shape(((15, 36), (30, 20), (45, 36), (36, 40), (30, 35), (23, 41)), (250, 252, 255), 1)
    paint.shape(((92, 44), (106, 29), (120, 44), (112, 46), (106, 42), (99, 47)), (250, 252, 255), 1)
    paint.band((246, 250, 255), (218, 230, 246), _HORIZON + 3, HEIGHT)
    paint.ellipse(20, 74, 50, 7, (246, 250, 255))
    paint.ellipse(110, 73, 60, 6, (246, 250, 255))


def _desert(paint: PlacePainter) -> None:
    paint.sky((255, 214, 160), (255, 238, 208))
    paint.ellipse(20, 88, 76, 34, (240, 206, 160))
    paint.ellipse(128, 90, 76, 32, (232, 194, 146))
    paint.band((242, 210, 158), (222, 180, 124), _HORIZON + 8, HEIGHT)
    for x, y, size in ((126, 72, 1.0), (12, 74, 0.8)):
        color: Color = (126, 178, 128)
        tint = paint.color(color)
        stroke(paint.canvas, [(x, y), (x, y - 30 * size)], tint, 7 * size)
        stroke(
            paint.canvas,
            [(x, y - 12 * size), (x - 9 * size, y - 13 * size), (x - 9 * size, y - 22 * size)],
            tint,
            5 * size,
        )
        stroke(
            paint.canvas,
            [(x, y - 9 * size), (x + 9 * size, y - 10 * size), (x + 9 * size, y - 18 * size)],
            tint,
            5 * size,
        )


def _cloudland(paint: PlacePainter) -> None:
    paint.sky((196, 170, 244), (255, 214, 232))
    arch: tuple[Color, ...] = ((250, 170, 176), (252, 224, 160), (170, 222, 190), (166, 190, 240))
    for index, color in enumerate(arch):
        turn = np.linspace(math.pi, 2 * math.pi, 32)
        radius = 52 - 5 * index
        stroke(
            paint.canvas,
            np.stack([52 + radius * np.cos(turn), 72 + radius * np.sin(turn)], axis=1),
            paint.color(color),
            5.4,
        )
    for x, y, size in ((6, 76, 15), (44, 80, 17), (86, 78, 16), (124, 76, 18)):
        paint.cloud(x, y, size, (255, 240, 248))
    paint.band((255, 242, 250), (238, 220, 244), _HORIZON + 14, HEIGHT)


_PLACES: dict[str, Callable[[PlacePainter], None]] = {
    "meadow": _meadow,
    "forest": _forest,
    "beach": _beach,
    "city": _city,
    "room": _room,
    "snowfield": _snowfield,
    "desert": _desert,
    "cloudland": _cloudland,
}


@lru_cache(maxsize=32)
def paint_place(place: str, night: bool) -> Canvas:
    """The picture of a place on a canvas, uint8 [384, 576, 3]. Cached: copy it before drawing on it."""
    paint = PlacePainter(night)
    _PLACES[place](paint)
    return paint.canvas


@lru_cache(maxsize=32)
def shadow_color(place: str, night: bool) -> Color:
    """The colour of a shadow on the ground of a place."""
    red, green, blue = paint_place(place, night)[GROUND_Y * SCALE, 72 * SCALE].tolist()
    return shade((red, green, blue), 0.8)
