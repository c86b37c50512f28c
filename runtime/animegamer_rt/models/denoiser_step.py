"""One denoising step: the denoiser, guidance and solver, as the denoiser engine runs them.

A step's numbers are inputs (bundle.noise_schedule.Coefficients). Source: MODEL.md section 5; backends/interface.py,
DenoiseRun.step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .denoiser import Denoiser


class DenoiserStep(nn.Module):
    """A step of any kind over one copy of the weights; `rows` selects it: pair [0, 1], conditional or reuse [1]."""

    unconditional: Tensor

    def __init__(self, denoiser: Denoiser, unconditional: Tensor) -> None:
        """unconditional [226, D]: the constant shot of the unconditional row, from Encoder.unconditional()."""
        super().__init__()
        self.denoiser = denoiser
        self.register_buffer("unconditional", unconditional.detach()[None])

    def forward(
        self,
        latent: Tensor,
        x0_prev: Tensor,
        noise: Tensor,
        difference: Tensor,
        coefficients: Tensor,
        timestep: Tensor,
        motion_scope: Tensor,
        shot: Tensor,
        rows: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(next latent, x0, next difference), each [1, 5, 16, h, w] float32 like the first four inputs.

        coefficients float32 [8]; timestep and motion_scope [1]; shot [1, 226, D]; rows int64 [B].
        difference: v conditional minus v unconditional of the last pair.
        """
        batch = rows.shape[0]
        shots = torch.cat([self.unconditional, shot]).index_select(0, rows)
        v = self.denoiser(
            latent.expand(batch, -1, -1, -1, -1), timestep.expand(batch), motion_scope.expand(batch), shots
        )
        return advance(v, latent, x0_prev, noise, difference, coefficients.unbind(0))


def advance(
    v: Tensor, latent: Tensor, x0_prev: Tensor, noise: Tensor, difference: Tensor, coefficients: Sequence[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Guidance and solver: v [B, 5, 16, h, w] -> (next latent, x0, next difference), each [1, 5, 16, h, w].

    coefficients: the eight numbers of noise_schedule.Coefficients in order, each [] or [1].
    """
    signal, sigma, guidance_minus_one, reuse, c_latent, c_x0, c_x0_prev, c_noise = coefficients
    # With one row the subtraction gives zero, and `reuse` adds the difference of the last pair.
    next_difference = v[-1:] - v[:1] + reuse * difference
    guided = v[-1:] + guidance_minus_one * next_difference
    x0 = signal * latent - sigma * guided
    next_latent = c_latent * latent + c_x0 * x0 + c_x0_prev * x0_prev + c_noise * noise
    return next_latent, x0, next_difference
