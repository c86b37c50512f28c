"""The pose of a character in each frame, by motion and level.

Higher levels have larger and slightly faster swings. A swing takes at least 10 frames, so that the VAE's latents (4
frames each) can follow. scene.py defines how far a travelling motion goes.
"""

from __future__ import annotations

import dataclasses
import math

from .scene import FRAMES

CYCLES = (1.0, 1.0, 1.2, 1.4, 1.5)
"""Swings per clip, by level."""

STRENGTH: dict[str, tuple[float, float, float, float, float]] = {
    "walk": (0.15, 0.39, 0.50, 0.76, 1.03),
    "run": (0.08, 0.29, 0.44, 0.67, 0.93),
    "jump": (0.29, 0.63, 0.84, 0.93, 1.14),
    "wave": (0.23, 0.56, 0.73, 0.92, 1.05),
    "dance": (0.25, 0.54, 0.67, 0.88, 1.01),
    "sit": (0.17, 0.40, 0.51, 0.66, 0.77),
    "lie down": (0.28, 0.59, 0.78, 0.90, 1.05),
    "fly": (0.12, 0.24, 0.33, 0.44, 0.53),
    "bow": (0.13, 0.30, 0.41, 0.47, 0.60),
}
"""Swing amplitude by motion and level, fitted to a mean flow of 0.5, 0.95, 1.4, 1.9 and 2.4 px per frame."""


@dataclasses.dataclass(slots=True)
class Pose:
    """One body in one frame. Angles in radians: 0 hangs down, positive is to the front.

    shift: px to the front; hip_y: the hip's px above the ground (both at scale 1). turn rotates the whole figure, lean
    the body above the hip, nod the head. mouth: 0 closed .. 1 open. gaze: px that the face is moved to the front.
    """

    shift: float = 0.0
    hip_y: float = 13.0
    turn: float = 0.0
    lean: float = 0.0
    nod: float = 0.0
    arms: tuple[float, float] = (-0.4, 0.4)
    legs: tuple[float, float] = (-0.08, 0.08)
    mouth: float = 0.0
    broom: bool = False
    asleep: bool = False
    gaze: float = 2.0


def pose_at(motion: str, level: int, frame: int, phase: float = 0.0) -> Pose:
    """The pose in a frame (0..16). phase: radians, the seed's jitter or the delay of the second character."""
    size = STRENGTH[motion][level - 1]
    angle = 2 * math.pi * CYCLES[level - 1] * frame / (FRAMES - 1) + phase
    swing, rise = math.sin(angle), (1 - math.cos(angle)) / 2
    step = (1 - math.cos(2 * angle)) / 2
    pose = Pose(mouth=(level - 1) / 4)
    if motion == "walk":
        stride = 0.12 + 0.5 * size
        pose.legs, pose.arms = (stride * swing, -stride * swing), (-0.9 * stride * swing - 0.1, 0.9 * stride * swing)
        pose.hip_y += 2.0 * size * step
    elif motion == "run":
        stride = 0.35 + 0.5 * size
        pose.legs, pose.arms = (stride * swing, -stride * swing), (-1.5, -1.2)
        pose.hip_y += 3.0 * size * step
        pose.lean, pose.nod = 0.36, -0.2
    elif motion == "jump":
        pose.hip_y += 12.0 * size * rise
        pose.arms = (-2.05 + 0.3 * size * swing, 2.05 - 0.3 * size * swing)
        pose.legs = (-0.15 - 0.4 * size * rise, 0.15 + 0.4 * size * rise)
    elif motion == "wave":
        pose.arms = (-0.5, 1.8 + 0.5 * size * swing)
        pose.lean = 0.24 * size * swing
    elif motion == "dance":
        pose.shift, pose.lean = 9.0 * size * swing, -0.12 * size * swing
        pose.arms = (-1.5 - 0.5 * size * swing, 1.5 - 0.5 * size * swing)
        pose.legs = (-0.2 - 0.25 * size * swing, 0.2 - 0.25 * size * swing)
        pose.hip_y += 2.0 * size * step
    elif motion == "sit":
        pose.hip_y, pose.legs, pose.arms = 4.5, (1.4, 1.3 + 0.3 * size * swing), (-0.7, 0.7)
        pose.lean = 0.34 * size * swing
    elif motion == "lie down":
        pose.shift, pose.hip_y, pose.asleep = 19.0, 12.0 + 9.0 * size * rise, True
        pose.turn = -1.5 - 0.15 * size * swing
        pose.arms, pose.legs = (0.3, 0.8 + 0.4 * size * swing), (0.1 + 0.5 * size * swing, 0.1 - 0.5 * size * swing)
    elif motion == "fly":
        pose.hip_y, pose.turn, pose.broom = 25.0 + 6.0 * size * swing, 0.22 - 0.12 * size * swing, True
        pose.arms, pose.legs = (0.8, 1.0), (-0.75, -0.5)
    elif motion == "bow":
        pose.lean, pose.nod = 0.62 - 0.4 * size * math.cos(angle), 0.12
        pose.arms, pose.gaze = (-0.5, -0.2), 2.5
    return pose
