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
from .poses import pose_at
from .scene import FRAMES, HEIGHT, PAIR_SPACING_PX, WIDTH, Scene

_ALONE_SCALE, _PAIR_SCALE = 1.06, 0.9
"""A figure is 60 px tall at scale 1: 66 % of the picture's height alone, 56 % in a pair."""
_JITTER_PX, _JITTER_RADIANS = 1.5, 0.25
_PARTNER_DELAY_RADIANS = 0.6

cv2.setNumThreads(1)  # One clip is too small to parallelise; many are rendered by several processes.


def render(scene: Scene, frames: int = FRAMES) -> npt.NDArray[np.uint8]:
    """The first `frames` frames of a scene's clip: uint8 [frames, 96, 144, 3] RGB."""
    jitter = random.Random(scene.seed)
    shift_x, shift_y = (jitter.uniform(-_JITTER_PX, _JITTER_PX) for _ in range(2))
    phase = jitter.uniform(-_JITTER_RADIANS, _JITTER_RADIANS)
    place = paint_place(scene.place, scene.night)
    scale = _PAIR_SCALE if scene.is_pair else _ALONE_SCALE
    apart = (-PAIR_SPACING_PX / 2, PAIR_SPACING_PX / 2) if scene.is_pair else (0.0,)
    clip = np.empty((frames, HEIGHT, WIDTH, 3), np.uint8)
    canvas = np.empty_like(place)  # Reused for all frames: a new one for each would cost page faults.
    for frame in range(frames):
        np.copyto(canvas, place)
        middle = scene.start_x + shift_x + scene.direction * scene.travel * frame / (FRAMES - 1)
        poses = [
            pose_at(scene.motion, scene.level, frame, phase + index * _PARTNER_DELAY_RADIANS)
            for index in range(len(scene.characters))
        ]
        for pose, offset in zip(poses, apart, strict=True):
            x = middle + offset + scene.direction * (pose.shift - 19.0 * math.sin(-pose.turn)) * scale
            size = 17.0 if pose.turn > -1 else 30.0
            fill(canvas, ellipse(0, 0, size * scale, 3.6) + (x, GROUND_Y + 1.0), shadow_color(scene.place, scene.night))
        for pose, offset, name, outfit in zip(poses, apart, scene.characters, scene.outfits, strict=True):
            draw_character(
                canvas, name, outfit, pose, middle + offset, GROUND_Y + shift_y, scene.direction, scale, scene.night
            )
        clip[frame] = downsample(canvas)
    return clip
