"""The heads of the five characters: hair, ears or a hood, and the face."""

from __future__ import annotations

from .body import DARK, RAINCOAT, WHITE, Body, CharacterStyle
from .drawing import ellipse, smooth
from .poses import Pose


def draw_back_of_head(body: Body, name: str, style: CharacterStyle, outfit: str) -> None:
    """Draws the hair or hood behind the face. The neck is at (0, 0), the centre of the face at (0, -13)."""
    if outfit == "raincoat":
        body.shape(ellipse(-1.5, -12.5, 18.0, 17.0), RAINCOAT)
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


def draw_front_of_head(body: Body, name: str, style: CharacterStyle, outfit: str, pose: Pose) -> None:
    """Draws the face, with the hair, ears or hat in front of it."""
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
    body: Body, style: CharacterStyle, pose: Pose, x: float, white_eyes: bool = False, snout: bool = False
) -> None:
    """Draws eyes at least 4 px wide, and a mouth that opens with the level."""
    eye_y = -11.5 if not white_eyes else -13.0
    for side in (-1, 1):
        middle = x + side * 5.8
        if pose.asleep:
            closed = [(middle - 3.0, eye_y), (middle, eye_y + 2.0), (middle + 3.0, eye_y)]
            body.line(closed, (120, 240, 250) if white_eyes else DARK, 1.9, outlined=False)
        elif white_eyes:
            body.shape(ellipse(middle, eye_y, 2.9, 4.0), (120, 240, 250), outlined=False)
        else:
            body.shape(ellipse(middle, eye_y, 3.0, 4.3), DARK, outlined=False)
            body.shape(ellipse(middle, eye_y + 1.6, 2.0, 2.3), style.eyes, outlined=False)
            body.shape(ellipse(middle - 0.9, eye_y - 1.6, 1.4, 1.5), WHITE, outlined=False)
        if not white_eyes and not snout:
            body.shape(ellipse(x + side * 9.2, -6.0, 2.3, 1.5), (255, 170, 160), outlined=False)
    mouth_y = -4.6 if not white_eyes else -6.4
    if snout:
        body.shape(ellipse(x, -6.8, 2.4, 1.7), DARK, outlined=False)
        mouth_y = -3.6
    tint = (120, 240, 250) if white_eyes else (206, 66, 84)
    body.shape(ellipse(x, mouth_y, 2.5, round(1.0 + 1.6 * pose.mouth, 2)), tint, outlined=False)
