"""The five characters, drawn: large heads, large eyes, one clear silhouette and colour each.

It does not know about clips or places; it puts one body in one pose on a canvas.
"""

from __future__ import annotations

import dataclasses
import math
from functools import lru_cache

import numpy as np

from .drawing import Canvas, Color, Points, ellipse, fill, shade, smooth, stroke
from .poses import Pose

_RAINCOAT: Color = (255, 208, 48)
_PARTY: Color = (222, 52, 84)
_WHITE: Color = (255, 255, 252)
_DARK: Color = (52, 34, 62)


@dataclasses.dataclass(frozen=True, slots=True)
class CharacterStyle:
    """A character's own colours and the shape of the everyday clothes (dress, shirt, robe, box or vest)."""

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


class _Body:
    """Drawing in a body's own coordinates: x to the front, y down, origin at the hip, 1 = 1 px at scale 1."""

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


def _rotation(angle: float, x: float = 0.0, y: float = 0.0) -> Points:
    """Rotates about (0, 0), then moves to (x, y). Positive turns y (down) towards -x: the head goes to the front."""
    cosine, sine = math.cos(angle), math.sin(angle)
    return np.array([[cosine, -sine, x], [sine, cosine, y], [0.0, 0.0, 1.0]])


def draw_character(
    canvas: Canvas,
    name: str,
    outfit: str,
    pose: Pose,
    x: float,
    ground_y: float,
    facing: int,
    scale: float,
    night: bool,
) -> None:
    """Draws one body; `x` and `ground_y` in px say where its feet are, `facing` is +1 (right) or -1."""
    style = STYLES[name]
    scale *= style.size
    body = _Body(canvas, night, scale)
    hip_x, hip_y = x + facing * pose.shift * scale, ground_y - pose.hip_y * scale
    base = np.array([[facing * scale, 0.0, hip_x], [0.0, scale, hip_y], [0.0, 0.0, 1.0]]) @ _rotation(pose.turn)
    upper = base @ _rotation(pose.lean)
    head = upper @ _rotation(pose.nod, 0.0, -17.0)
    coat, sleeve, leg, shoe = _clothes(style, outfit)

    body.matrix = head
    _back_of_head(body, name, style, outfit)
    body.matrix = base
    if name == "Tofi":
        body.shape(smooth(((-2, 2), (-14, 4), (-24, -6), (-25, -20), (-18, -22), (-17, -12), (-8, -6)), 2), style.skin)
        body.shape(smooth(((-24, -10), (-26, -21), (-18, -23), (-18, -14)), 2), _WHITE, outlined=False)
    if pose.broom:
        body.shape(smooth(((-14, -3), (-36, -8), (-40, 3), (-34, 13), (-14, 7)), 1), (246, 206, 96))
        body.line([(-16, 2), (30, 2)], (158, 104, 62), 3.4)
    _leg(body, pose.legs[0], -4.0, leg, shoe, 0.88)
    body.matrix = upper
    _arm(body, pose.arms[0], -6.5, shade(sleeve, 0.9), style)
    body.matrix = base
    _leg(body, pose.legs[1], 4.0, leg, shoe, 1.0)
    body.matrix = upper
    _torso(body, style, outfit, coat)
    body.matrix = head
    _front_of_head(body, name, style, outfit, pose)
    body.matrix = upper
    _arm(body, pose.arms[1], 6.5, sleeve, style)


def _clothes(style: CharacterStyle, outfit: str) -> tuple[Color, Color, Color, Color]:
    """The colours of coat, sleeves, legs and shoes."""
    if outfit == "raincoat":
        return _RAINCOAT, _RAINCOAT, style.legs, (255, 170, 40)
    if outfit == "party":
        return _PARTY, _PARTY, (250, 240, 240), (190, 30, 60)
    return style.top, (style.skin if style.garment in ("dress", "vest") else style.top), style.legs, style.shoes


def _leg(body: _Body, angle: float, x: float, leg: Color, shoe: Color, light: float) -> None:
    foot = (x + 11.0 * math.sin(angle), 11.0 * math.cos(angle))
    body.line([(x, 0.0), foot], shade(leg, light), 6.0)
    toe = (foot[0] + 2.2 * math.cos(angle), foot[1] - 2.2 * math.sin(angle))
    body.line([foot, toe], shade(shoe, light), 5.2)


def _arm(body: _Body, angle: float, x: float, sleeve: Color, style: CharacterStyle) -> None:
    hand = (x + 15.5 * math.sin(angle), -14.0 + 15.5 * math.cos(angle))
    elbow = (x + 11.0 * math.sin(angle), -14.0 + 11.0 * math.cos(angle))
    body.line([hand, hand], style.skin, 6.0)
    body.line([(x, -14.0), elbow], sleeve, 5.6)


def _torso(body: _Body, style: CharacterStyle, outfit: str, coat: Color) -> None:
    if outfit == "raincoat":
        body.shape(smooth(((-6, -19), (6, -19), (13, 8), (-13, 8)), 1), coat)
        body.line([(0, -13), (0, 4)], (224, 150, 30), 2.0, outlined=False)
        return
    if style.garment in ("dress", "robe") or (outfit == "party" and style.garment == "vest"):
        half, hem = (12.5, 6.0) if style.garment != "robe" else (11.5, 9.0)
        body.shape(smooth(((-6, -19), (6, -19), (half, hem), (-half, hem)), 1), coat)
    elif style.garment == "box":
        body.shape(smooth(((-11, -18), (11, -18), (11, 3), (-11, 3)), 1), coat)
    else:
        body.shape(smooth(((-8, -19), (8, -19), (9.5, 3), (-9.5, 3)), 1), coat)
    if outfit == "party":
        body.shape(
            smooth(((-8, -18), (-1, -14), (1, -14), (8, -18), (8, -9), (1, -12.5), (-1, -12.5), (-8, -9)), 1), _WHITE
        )
    elif style.garment == "vest":
        body.shape(ellipse(1.5, -6.0, 4.6, 7.5), (255, 240, 220), outlined=False)
    elif style.garment == "box":
        body.shape(ellipse(1.5, -7.5, 4.2, 4.2), (250, 110, 100), outlined=False)
    elif style.garment == "shirt":
        body.line([(-7, -15), (0, -12.5), (7, -15)], (255, 160, 70), 4.0, outlined=False)
    elif style.garment == "robe":
        body.line([(-9, 1), (9, 1)], (250, 214, 110), 3.0, outlined=False)
    else:
        body.line([(-9.5, 2), (9.5, 2)], _WHITE, 2.6, outlined=False)


def _back_of_head(body: _Body, name: str, style: CharacterStyle, outfit: str) -> None:
    """Hair, ears or a hood behind the face. Coordinates from the neck; the face's middle is at (0, -13)."""
    if outfit == "raincoat":
        body.shape(ellipse(-1.5, -12.5, 18.0, 17.0), _RAINCOAT)
    if name == "Mirel":
        for side in (-1, 1):
            body.shape(
                smooth(
                    (
                        (side * 10, -24),
                        (side * 22, -20),
                        (side * 25, -4),
                        (side * 20, 10),
                        (side * 16, 2),
                        (side * 13, -10),
                    ),
                    2,
                ),
                style.hair,
            )
        body.shape(ellipse(-0.5, -14.5, 15.8, 14.5), style.hair)
    elif name == "Zelki":
        body.shape(smooth(((-15, -22), (15, -22), (18, 1), (9, 4), (-9, 4), (-18, 1)), 2), style.hair)
    elif name == "Dovan":
        body.shape(ellipse(-1.5, -15.0, 15.5, 13.5), style.hair)


def _front_of_head(body: _Body, name: str, style: CharacterStyle, outfit: str, pose: Pose) -> None:
    if name == "Bixo":
        body.line([(0, -24), (0, -33)], (120, 140, 160), 2.8)
        body.shape(ellipse(0, -34.5, 3.6, 3.6), (250, 110, 100))
        body.shape(smooth(((-17, -27), (17, -27), (17, 0), (-17, 0)), 2), style.skin)
        body.shape(smooth(((-11, -22), (16, -22), (16, -3), (-11, -3)), 2), (44, 58, 84), outlined=False)
        _face(body, style, pose, x=pose.gaze + 0.5, white_eyes=True)
        return
    if name == "Tofi":
        for side in (-1, 1):
            body.shape(smooth(((side * 3, -24), (side * 14, -39), (side * 17, -14)), 1), style.skin)
            body.shape(
                smooth(((side * 8, -25), (side * 13, -34), (side * 14.5, -20)), 1), (255, 222, 190), outlined=False
            )
        body.shape(smooth(((-12, -25), (12, -25), (19, -9), (8, 0), (-8, 0), (-19, -9)), 2), style.skin)
        body.shape(
            smooth(
                ((pose.gaze - 12, -7), (pose.gaze, -10), (pose.gaze + 12, -7), (pose.gaze + 6, 0), (pose.gaze - 6, 0)),
                2,
            ),
            (255, 240, 220),
            outlined=False,
        )
        _face(body, style, pose, x=pose.gaze, snout=True)
        return
    body.shape(ellipse(0.0, -12.5, 14.5, 12.8), style.skin)
    _face(body, style, pose, x=pose.gaze)
    if name == "Mirel":
        body.shape(
            smooth(
                (
                    (-15, -9),
                    (-15.5, -22),
                    (-7, -29),
                    (5, -29.5),
                    (14, -24),
                    (15.5, -12),
                    (11, -18),
                    (4, -20),
                    (-3, -17),
                    (-9, -18),
                ),
                2,
            ),
            style.hair,
        )
        for side in (-1, 1):
            body.shape(ellipse(side * 13.5, -24.5, 3.8, 3.8), (255, 232, 120))
    elif name == "Dovan":
        body.shape(
            smooth(
                (
                    (-15, -8),
                    (-20, -20),
                    (-15, -21),
                    (-17, -31),
                    (-8, -28),
                    (-4, -37),
                    (2, -29),
                    (11, -34),
                    (12, -26),
                    (19, -26),
                    (15, -12),
                    (11, -19),
                    (5, -17),
                    (0, -20),
                    (-6, -16),
                    (-11, -18),
                ),
                1,
            ),
            style.hair,
        )
    else:
        body.shape(
            smooth(((-16, -2), (-16, -21), (15, -21), (15.5, -10), (8, -17), (-6, -16), (-12, -10)), 2), style.hair
        )
        hat = {"everyday": (104, 56, 170), "party": (190, 40, 76), "raincoat": (232, 170, 30)}[outfit]
        body.shape(smooth(((-13, -20), (-8, -32), (-10, -43), (1, -37), (9, -29), (13, -20)), 2), hat)
        body.shape(ellipse(0.0, -20.0, 21.0, 4.2), hat)
        body.line([(-9.5, -24.5), (0, -23.5), (9.5, -24.5)], (250, 214, 110), 3.2, outlined=False)


def _face(
    body: _Body, style: CharacterStyle, pose: Pose, x: float, white_eyes: bool = False, snout: bool = False
) -> None:
    """Eyes at least 4 px wide and a mouth that opens with the level."""
    eye_y = -11.5 if not white_eyes else -13.0
    for side in (-1, 1):
        middle = x + side * 5.8
        if pose.asleep:
            closed = [(middle - 3.0, eye_y), (middle, eye_y + 2.0), (middle + 3.0, eye_y)]
            body.line(closed, (120, 240, 250) if white_eyes else _DARK, 1.9, outlined=False)
        elif white_eyes:
            body.shape(ellipse(middle, eye_y, 2.9, 4.0), (120, 240, 250), outlined=False)
        else:
            body.shape(ellipse(middle, eye_y, 3.0, 4.3), _DARK, outlined=False)
            body.shape(ellipse(middle, eye_y + 1.6, 2.0, 2.3), style.eyes, outlined=False)
            body.shape(ellipse(middle - 0.9, eye_y - 1.6, 1.4, 1.5), _WHITE, outlined=False)
        if not white_eyes and not snout:
            body.shape(ellipse(x + side * 9.2, -6.0, 2.3, 1.5), (255, 170, 160), outlined=False)
    mouth_y = -4.6 if not white_eyes else -6.4
    if snout:
        body.shape(ellipse(x, -6.8, 2.4, 1.7), _DARK, outlined=False)
        mouth_y = -3.6
    tint = (120, 240, 250) if white_eyes else (206, 66, 84)
    body.shape(ellipse(x, mouth_y, 2.5, round(1.0 + 1.6 * pose.mouth, 2)), tint, outlined=False)
