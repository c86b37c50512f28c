"""How near a light decoder's frames are to the full decoder's of the same latents."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from animegamer_export.evaluate.metrics import Clip, psnr

MOVES, MARGIN = 40, 6
"""What stands still: a pixel at least MARGIN pixels from every one whose range over the clip is above MOVES."""


def likeness(clips: Sequence[Clip], references: Sequence[Clip]) -> dict[str, float]:
    """Means over clips u8 [17, H, W, 3], each against its reference.

    `psnr_db`. `edges`, `motion`: mean difference of neighbouring pixels and of following frames, over the reference's.
    `motion_error`: mean difference of both clips' changes, over the mean change. `flicker`: `motion` where the
    reference stands still; left out if it nowhere does.
    """
    sums = torch.zeros(7, dtype=torch.float64)
    for clip, reference in zip(clips, references, strict=True):
        ours, true = (torch.from_numpy(one.astype(np.float32)) for one in (clip, reference))
        change, true_change = ours.diff(dim=0), true.diff(dim=0)
        still = _still(true).expand_as(change)
        parts = (_edges(ours), _edges(true), change.abs().sum(), true_change.abs().sum())
        apart = (change - true_change).abs().sum()
        sums += torch.stack([*parts, apart, change[still].abs().sum(), true_change[still].abs().sum()]).double()
    edges, true_edges, motion, true_motion, apart, flicker, true_flicker = sums.tolist()
    found = {
        "psnr_db": float(np.mean([psnr(a, b) for a, b in zip(clips, references, strict=True)])),
        "edges": edges / true_edges,
        "motion": motion / true_motion,
        "motion_error": apart / true_motion,
    }
    return {**found, "flicker": flicker / true_flicker} if true_flicker else found


def _edges(clip: Tensor) -> Tensor:
    return clip.diff(dim=1).abs().sum() + clip.diff(dim=2).abs().sum()


def _still(clip: Tensor) -> Tensor:
    """bool [1, H, W, 1] of frames f32 [T, H, W, 3]."""
    moves = (clip.amax(0) - clip.amin(0)).amax(2) > MOVES
    near = F.max_pool2d(moves[None, None].float(), 2 * MARGIN + 1, stride=1, padding=MARGIN)
    return near[0, 0, None, :, :, None] == 0
