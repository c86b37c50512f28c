"""The VAE's reconstruction losses: pixels, edges and amount of change."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

GRADIENT_WEIGHT = 0.5
MOVING_WEIGHT = 4.0


def reconstruction_loss(decoded: Tensor, pixels: Tensor) -> Tensor:
    """L1 and squared error plus L1 of edges (neighbouring pixels' differences), all weighted where pixels move.

    decoded: [B, 3, T, H, W], any float dtype; pixels: float32, the same shape. Returns a scalar.
    """
    decoded = decoded.float()
    weight = 1.0 + MOVING_WEIGHT * _motion_mask(pixels)
    error = decoded - pixels
    plain = (weight * (error.abs() + 2.0 * error.square())).mean() / weight.mean()
    across = (error[..., 1:] - error[..., :-1]).abs()
    down = (error[..., 1:, :] - error[..., :-1, :]).abs()
    edges = (weight[..., 1:] * across).mean() + (weight[..., 1:, :] * down).mean()
    return plain + GRADIENT_WEIGHT * edges / weight.mean()


def change_loss(decoded: Tensor, pixels: Tensor) -> Tensor:
    """The error of the local amount of change, in time, vertically and horizontally.

    Where something may be in one of two places, a squared error rewards a blurred mean of both, which hardly moves.
    This loss does not prefer that mean. Shapes as in `reconstruction_loss`.
    """
    weight = 1.0 + MOVING_WEIGHT * _motion_mask(pixels)[..., ::4, ::4]
    errors = []
    for axis in (2, 3, 4):
        error = _local_change(decoded.float(), axis) - _local_change(pixels, axis)
        errors.append((weight * error.abs()).mean())
    return torch.stack(errors).sum() / weight.mean()


def _local_change(pixels: Tensor, axis: int) -> Tensor:
    """Mean change along an axis in windows of 7 x 7 pixels, stride 4: [B, 3, T, H / 4, W / 4]."""
    changes = pixels.diff(dim=axis, append=pixels.narrow(axis, pixels.shape[axis] - 1, 1)).abs()
    return F.avg_pool3d(changes, (1, 7, 7), stride=(1, 4, 4), padding=(0, 3, 3))


def _motion_mask(pixels: Tensor) -> Tensor:
    """1 where the clip changes over time (grown by two pixels), 0 elsewhere: [B, 1, 1, H, W]."""
    change = (pixels.amax(dim=2) - pixels.amin(dim=2)).amax(dim=1, keepdim=True)
    return F.max_pool2d((change > 0.1).float(), 5, stride=1, padding=2).unsqueeze(2)
