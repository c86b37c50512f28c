"""The pose of a character in each frame, by motion and level.

Every clip ends in the pose in which its motion begins, whatever the level, so the next clip can start there: it leaves
that pose for its own motion's first one within some frames. Higher levels have larger swings. A swing takes at least 10
frames, so that the VAE's latents (4 frames each) can follow. scene.py defines how far a travelling motion goes.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from .scene import FRAMES

CYCLES = (1.0, 1.0, 1.0, 1.5, 1.5)
"""Swings per clip, by level. Always 1 for jump, lie down and bow, which are not at their first pose after half a swing.
"""

STRENGTH: dict[str, tuple[float, float, float, float, float]] = {
    "walk": (0.20, 0.40, 0.50, 0.80, 1.00),
    "run": (0.12, 0.30, 0.40, 0.75, 0.90),
    "jump": (0.21, 0.43, 0.66, 0.88, 1.11),
    "wave": (0.16, 0.39, 0.63, 0.60, 0.78),
    "dance": (0.14, 0.29, 0.43, 0.42, 0.53),
    "sit": (0.12, 0.30, 0.49, 0.46, 0.59),
    "lie down": (0.23, 0.50, 0.78, 1.04, 1.28),
    "fly": (0.12, 0.24, 0.33, 0.44, 0.53),
    "bow": (0.09, 0.22, 0.34, 0.46, 0.59),
    "stand": (0.31, 0.70, 1.14, 1.07, 1.42),
}
"""Swing amplitude by motion and level, fitted to a mean flow of 0.46, 0.85, 1.25, 1.65 and 2.05 px per frame; up to 2.2
for travelling motions, most of it travel."""

HEAD_PX = 30.0
"""From the hip to the middle of the head, at scale 1."""
FASTEST_PX = 4.5
"""Top speed of a head between two motions' first poses, px per frame at scale 1."""


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

    @property
    def head(self) -> tuple[float, float]:
        """The middle of the head, px to the front and px above the ground, at scale 1."""
        angle = self.turn + self.lean
        return self.shift + HEAD_PX * math.sin(angle), self.hip_y + HEAD_PX * math.cos(angle)


def clip_poses(motion: str, level: int, before: str = "", phase: float = 0.0) -> list[Pose]:
    """The poses of a clip, which starts in the first pose of the motion `before`.

    phase: radians, how far the swings are ahead in the middle of the clip.
    """
    poses = [_pose(motion, level, frame, phase) for frame in range(FRAMES)]
    first = _pose(before or motion, level, 0, 0.0)
    taken = max(4, math.ceil(1.5 * math.dist(first.head, poses[0].head) / FASTEST_PX))  # eased: 1.5 times the mean
    return [_between(first, pose, ease(frame / taken)) for frame, pose in enumerate(poses)]


def ease(share: float) -> float:
    """From 0 to 1 with a soft start and end."""
    share = min(1.0, share)
    return share * share * (3 - 2 * share)


def _between(first: Pose, second: Pose, share: float) -> Pose:
    def mixed(one: Any, other: Any) -> Any:
        if isinstance(one, bool):
            return one if share < 0.5 else other
        if isinstance(one, tuple):
            return tuple(map(mixed, one, other))
        return one + share * (other - one)

    names = (field.name for field in dataclasses.fields(Pose))
    return Pose(**{name: mixed(getattr(first, name), getattr(second, name)) for name in names})


def _pose(motion: str, level: int, frame: int, phase: float) -> Pose:
    """The pose in a frame (0..16): the motion's first pose in the first and the last."""
    size, shown = STRENGTH[motion][level - 1], math.sin(math.pi * frame / (FRAMES - 1))
    cycles = 1.0 if motion in ("jump", "lie down", "bow") else CYCLES[level - 1]
    angle = 2 * math.pi * cycles * frame / (FRAMES - 1) + phase * shown
    swing, rise = math.sin(angle), (1 - math.cos(angle)) / 2
    step = (1 - math.cos(2 * angle)) / 2
    pose = Pose(mouth=(level - 1) / 4 * shown)
    if motion == "walk":
        stride = 0.2 + 0.5 * size
        pose.legs, pose.arms = (stride * swing, -stride * swing), (-0.9 * stride * swing - 0.1, 0.9 * stride * swing)
        pose.hip_y, pose.lean = 13.0 + 2.0 * size * step, 0.05
    elif motion == "run":
        stride = 0.35 + 0.5 * size
        pose.legs, pose.arms = (stride * swing - 0.5, -stride * swing + 0.3), (-1.7, 1.2)
        pose.shift, pose.hip_y = 5.0, 10.5 + 3.0 * size * step
        pose.turn, pose.lean, pose.nod = 0.25, 0.3, -0.35
    elif motion == "jump":
        pose.shift, pose.hip_y = -4.0, 17.0 + 15.0 * size * rise
        pose.arms = (-2.2 + 0.3 * size * swing, 2.2 - 0.3 * size * swing)
        pose.legs = (-0.8 + 0.3 * size * rise, 0.8 - 0.3 * size * rise)
    elif motion == "wave":
        pose.shift, pose.turn = -8.0, -0.12
        pose.arms = (-0.7, 1.95 + 0.5 * size * swing)
        pose.lean = -0.1 + 0.24 * size * swing
    elif motion == "dance":
        pose.shift, pose.turn = 13.2 + 9.0 * size * swing, 0.06 * size * swing
        pose.arms = (-2.1 - 0.4 * size * swing, 1.5 - 0.6 * size * swing)
        pose.legs = (-0.1 - 0.25 * size * swing, 1.1 - 0.25 * size * swing)
        pose.hip_y = 18.5 + 2.0 * size * step
    elif motion == "sit":
        pose.hip_y, pose.legs, pose.arms = 3.2, (1.4, 1.3 + 0.3 * size * swing), (-0.7, 0.7)
        pose.shift, pose.lean = 4.0, -0.28 + 0.34 * size * swing
    elif motion == "lie down":
        pose.shift, pose.hip_y, pose.asleep = 19.0, 12.0 + 5.0 * size * rise, True
        pose.turn = -1.5 - 0.2 * size * swing
        pose.arms, pose.legs = (0.3, 0.8 + 0.4 * size * swing), (0.1 + 0.5 * size * swing, 0.1 - 0.5 * size * swing)
    elif motion == "fly":
        pose.hip_y, pose.turn, pose.broom = 25.0 + 6.0 * size * swing, 0.22 - 0.12 * size * swing, True
        pose.arms, pose.legs = (0.8, 1.0), (-0.75, -0.5)
    elif motion == "bow":
        pose.shift, pose.lean, pose.nod = -8.0, 0.7 + 0.8 * size * rise, 0.12
        pose.arms, pose.gaze = (-0.9, -0.6), 2.5
    elif motion == "stand":
        pose.shift, pose.gaze = -22.0 + 5.0 * size * swing, 0.0
        pose.lean, pose.hip_y = -0.2 * size * swing, 13.0 + 1.5 * size * step
        pose.arms = (-0.6 - 0.4 * size * step, 0.6 + 0.4 * size * step)
        pose.legs = (-0.15 - 0.15 * size * swing, 0.15 - 0.15 * size * swing)
    return pose
