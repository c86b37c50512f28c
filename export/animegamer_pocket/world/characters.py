"""Draws the five characters: large heads, large eyes, one clear silhouette and colour each."""

from __future__ import annotations

import math

import numpy as np

from .body import PARTY, RAINCOAT, STYLES, WHITE, Body, CharacterStyle, rotation
from .drawing import Canvas, Color, ellipse, shade, smooth
from .head import draw_back_of_head, draw_front_of_head
from .poses import Pose


def draw_character(
    canvas: Canvas,
    name: str,
    outfit: str,
    pose: Pose,
    x: float,
    ground_y: float,
    facing: float,
    scale: float,
    night: bool,
) -> None:
    """Draw one character. x, ground_y: px of its feet; facing: +1 (right) .. -1 (left)."""
    style = STYLES[name]
    scale *= style.size
    body = Body(canvas, night, scale)
    hip_x, hip_y = x + facing * pose.shift * scale, ground_y - pose.hip_y * scale
    base = np.array([[facing * scale, 0.0, hip_x], [0.0, scale, hip_y], [0.0, 0.0, 1.0]]) @ rotation(pose.turn)
    upper = base @ rotation(pose.lean)
    head = upper @ rotation(pose.nod, 0.0, -17.0)
    coat, sleeve, leg, shoe = _clothes(style, outfit)

    body.matrix = head
    draw_back_of_head(body, name, style, outfit)
    body.matrix = base
    if name == "Tofi":
        # Low, so that it never hides the arm behind it, which has its colour.
        tail = ((-2, 3), (-12, 7), (-24, 6), (-33, -2), (-33, -11), (-26, -9), (-17, -4), (-7, -3))
        body.shape(smooth(tail, 2), style.skin)
        body.shape(smooth(((-26, 3), (-34, -1), (-34, -11), (-27, -9)), 2), WHITE, outlined=False)
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
    draw_front_of_head(body, name, style, outfit, pose)
    body.matrix = upper
    _arm(body, pose.arms[1], 6.5, sleeve, style)


def _clothes(style: CharacterStyle, outfit: str) -> tuple[Color, Color, Color, Color]:
    """The colours of coat, sleeves, legs and shoes."""
    if outfit == "raincoat":
        return RAINCOAT, RAINCOAT, style.legs, (255, 170, 40)
    if outfit == "party":
        return PARTY, PARTY, (250, 240, 240), (190, 30, 60)
    return style.top, (style.skin if style.garment in ("dress", "vest") else style.top), style.legs, style.shoes


def _leg(body: Body, angle: float, x: float, leg: Color, shoe: Color, light: float) -> None:
    foot = (x + 11.0 * math.sin(angle), 11.0 * math.cos(angle))
    body.line([(x, 0.0), foot], shade(leg, light), 6.0)
    toe = (foot[0] + 2.2 * math.cos(angle), foot[1] - 2.2 * math.sin(angle))
    body.line([foot, toe], shade(shoe, light), 5.2)


def _arm(body: Body, angle: float, x: float, sleeve: Color, style: CharacterStyle) -> None:
    hand = (x + 15.5 * math.sin(angle), -14.0 + 15.5 * math.cos(angle))
    elbow = (x + 11.0 * math.sin(angle), -14.0 + 11.0 * math.cos(angle))
    body.line([hand, hand], style.skin, 6.0)
    body.line([(x, -14.0), elbow], sleeve, 5.6)


def _torso(body: Body, style: CharacterStyle, outfit: str, coat: Color) -> None:
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
            smooth(((-8, -18), (-1, -14), (1, -14), (8, -18), (8, -9), (1, -12.5), (-1, -12.5), (-8, -9)), 1), WHITE
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
        body.line([(-9.5, 2), (9.5, 2)], WHITE, 2.6, outlined=False)
