"""Renders a scene to its clip: 17 frames of 96 x 144 at 8 fps. Deterministic."""

from __future__ import annotations

import math
import random

import cv2
import numpy as np
import numpy.typing as npt

from .characters import draw_character
from .drawing import downsample, ellipse, fill
from .places import GROUND_Y, paint_place, shadow_color
from .poses import clip_poses, ease
from .scene import FRAMES, HEIGHT, PAIR_SPACING_PX, WIDTH, Scene

_ALONE_SCALE, _PAIR_SCALE = 1.06, 0.9
"""A figure is 60 px tall at scale 1: 66 % of the picture's height alone, 56 % in a pair."""
_JITTER_RADIANS = 0.25
_PARTNER_DELAY_RADIANS = 0.6
_TURN_FRAMES = 5
"""Frames in which characters turn round if they end facing the other way."""

cv2.setNumThreads(1)  # One clip is too small to parallelise; many are rendered by several processes.


def render(scene: Scene, frames: int = FRAMES) -> npt.NDArray[np.uint8]:
    """The first `frames` frames of a scene's clip: uint8 [frames, 96, 144, 3] RGB."""
    phase = random.Random(scene.seed).uniform(-_JITTER_RADIANS, _JITTER_RADIANS)
    place = paint_place(scene.place, scene.night)
    scale = _PAIR_SCALE if scene.is_pair else _ALONE_SCALE
    apart = (-PAIR_SPACING_PX / 2, PAIR_SPACING_PX / 2) if scene.is_pair else (0.0,)
    people = [
        clip_poses(scene.motion, scene.level, scene.before, phase + index * _PARTNER_DELAY_RADIANS)
        for index in range(len(scene.characters))
    ]
    clip = np.empty((frames, HEIGHT, WIDTH, 3), np.uint8)
    canvas = np.empty_like(place)  # Reused for all frames: a new one for each would cost page faults.
    for frame in range(frames):
        np.copyto(canvas, place)
        middle = scene.start_x + scene.direction * scene.travel * frame / (FRAMES - 1)
        facing = scene.facing + (scene.direction - scene.facing) * ease(frame / _TURN_FRAMES)
        poses = [clip_of_one[frame] for clip_of_one in people]
        for pose, offset in zip(poses, apart, strict=True):
            x = middle + offset + facing * (pose.shift - 19.0 * math.sin(-pose.turn)) * scale
            size = 17.0 + 13.0 * min(1.0, max(0.0, -pose.turn))
            fill(canvas, ellipse(0, 0, size * scale, 3.6) + (x, GROUND_Y + 1.0), shadow_color(scene.place, scene.night))
        for pose, offset, name, outfit in zip(poses, apart, scene.characters, scene.outfits, strict=True):
            draw_character(canvas, name, outfit, pose, middle + offset, GROUND_Y, facing, scale, scene.night)
        clip[frame] = downsample(canvas)
    return clip
