"""The quality gate of a run: turns played before and after the timed part must show the frames that they should.

The same turns give the same bytes on a device that computes deterministically; a plan that leaves steps out must come
as close to `exact` as the bundle says of it. A run that fails is marked, never dropped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from animegamer_rt.backends.interface import Engines, Frames
from animegamer_rt.bundle.manifest import EXACT, RANDOM_WEIGHTS
from animegamer_rt.events import FrameReady
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.session import Session
from animegamer_rt.state.instruction import Instruction

SEED = 100
SAME_SSIM = 0.99
"""Least SSIM of two plays of one turn on a device that does not compute deterministically."""
SSIM_MARGIN = 0.05
"""How far below the bundle's mean for a plan a few turns may lie: single turns of pocket vary by this much."""
_WINDOW = np.exp(-0.5 * (np.arange(-5, 6) / 1.5) ** 2)
_WINDOW /= _WINDOW.sum()
_C1, _C2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2


@dataclass(frozen=True, slots=True)
class GateClips:
    """The clips u8 [17, H, W, 3] of the gate's turns."""

    clips: tuple[Frames, ...]

    @property
    def sha256(self) -> list[str]:
        """The hash of each clip's bytes."""
        return [hashlib.sha256(clip.tobytes()).hexdigest() for clip in self.clips]


def play_gate(pipeline: Pipeline, texts: Sequence[str]) -> GateClips:
    """Plays one turn for each text, all of one new game."""
    session = Session.start(pipeline.bundle, seed=SEED)
    clips = []
    for text in texts:
        events = pipeline.run_turn(session, Instruction.parse(text))
        clips.append(np.stack([event.frame for event in events if isinstance(event, FrameReady)]))
    return GateClips(tuple(clips))


def judge(pipeline: Pipeline, engines: Engines, texts: Sequence[str], before: GateClips) -> dict[str, Any]:
    """Plays the gate's turns again, and by the plan `exact`; the record's field `quality_gate`."""
    after = play_gate(pipeline, texts)
    same = before.sha256 == after.sha256
    repeated = 1.0 if same else _similarity(before, after)
    result: dict[str, Any] = {
        "turns": len(texts),
        "seed": SEED,
        "frames_sha256": before.sha256,
        "deterministic": same,
        "ssim_repeated": round(repeated, 4),
        "ssim_against_exact": None,
        "ssim_needed": None,
        "passed": repeated >= SAME_SSIM,
    }
    told = pipeline.bundle.manifest.plans[pipeline.plan_name].fidelity.get("ssim")
    if pipeline.plan_name != EXACT and pipeline.bundle.manifest.origin != RANDOM_WEIGHTS and told is not None:
        exact = play_gate(Pipeline.open(pipeline.bundle, engines, EXACT), texts)
        found, needed = _similarity(before, exact), float(told) - SSIM_MARGIN
        result |= {"ssim_against_exact": round(found, 4), "ssim_needed": round(needed, 4)}
        result["passed"] = bool(result["passed"] and found >= needed)
    return result


def _similarity(first: GateClips, second: GateClips) -> float:
    pairs = zip(first.clips, second.clips, strict=True)
    return float(np.mean([ssim(a, b) for one, other in pairs for a, b in zip(one, other, strict=True)]))


def ssim(first: npt.NDArray[np.uint8], second: npt.NDArray[np.uint8]) -> float:
    """Structural similarity of two frames u8 [H, W, C], mean over pixels and channels; 1 when equal.

    Source: Wang et al. 2004, with an 11-pixel Gaussian window of sigma 1.5.
    """
    a, b = first.astype(np.float64), second.astype(np.float64)
    mean_a, mean_b = _blur(a), _blur(b)
    var_a, var_b = _blur(a * a) - mean_a**2, _blur(b * b) - mean_b**2
    covariance = _blur(a * b) - mean_a * mean_b
    top = (2 * mean_a * mean_b + _C1) * (2 * covariance + _C2)
    return float(np.mean(top / ((mean_a**2 + mean_b**2 + _C1) * (var_a + var_b + _C2))))


def _blur(image: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """[H, W, C], blurred along height and width; beyond its edges the image is mirrored."""
    for _ in range(2):
        mirrored = np.pad(image, ((5, 5), (0, 0), (0, 0)), mode="reflect")
        rows = (weight * mirrored[k : k + len(image)] for k, weight in enumerate(_WINDOW))
        image = np.asarray(sum(rows)).swapaxes(0, 1)
    return image
