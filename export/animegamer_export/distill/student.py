"""The student: a copy of the denoiser that draws the teacher's clip in a few unguided steps.

It learns the teacher's latents by regression along its own steps, with the noise that the teacher summed up, so that a
step lacks only what later noise decides. Either all weights learn, or a difference of low rank over frozen ones, which
takes a fifth of the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from animegamer_rt.bundle.denoise_plan import DenoisePlan, noise_weights
from animegamer_rt.models.denoiser import Block, Denoiser
from animegamer_rt.models.denoiser_step import advance
from animegamer_rt.noise import as_array, draw_turn

from .optimiser import Optimisers, PhaseConfig, autocast, is_hidden
from .turns import Rows, Shard

LEARNING_RATE, MUON_LEARNING_RATE = 2.5e-4, 1.5e-3
LOW_RANK_LEARNING_RATE = 1e-3
MAX_MOTION_RATIO = 12.0
"""Limit of a cell's change over the clip's mean change, in `motion_weights`."""
DRAWN_AT_ONCE = 8


class Steps:
    """A plan's unguided steps as tensors on a device."""

    def __init__(self, plan: DenoisePlan, device: torch.device) -> None:
        self.device, self.timesteps = device, [float(step.timestep) for step in plan]
        self.coefficients = torch.from_numpy(plan.coefficients()).to(device)
        self._weights = [*noise_weights(plan), np.zeros(0, np.float32)]

    def noise(self, seeds: Tensor, shape: tuple[int, ...]) -> Tensor:
        """The first latent and each step's noise, f32 [steps + 1, B, 5, 16, h, w], of first turns with seeds [B]."""
        drawn = [[as_array(one) for one in draw_turn(int(seed), 1, self._weights, shape)] for seed in seeds]
        return torch.from_numpy(np.asarray(drawn)).transpose(0, 1).to(self.device)

    def roll_out(self, network: nn.Module, shots: Tensor, scopes: Tensor, noise: Tensor) -> Iterator[Tensor]:
        """Each step's x0 [B, 5, 16, h, w]; the last one is what the plan draws. No gradient passes between steps."""
        latent = noise[0]
        x0 = difference = torch.zeros_like(latent)
        for timestep, coefficients, added in zip(self.timesteps, self.coefficients, noise[1:], strict=True):
            times = torch.full((len(latent),), timestep, device=self.device)
            with autocast(self.device):
                v = network(latent, times, scopes, shots)
            state = (latent[None], x0[None], added[None], difference[None])
            latent, x0, difference = (one[0] for one in advance(v.float()[None], *state, coefficients.unbind()))
            yield x0
            latent, x0, difference = latent.detach(), x0.detach(), difference.detach()


@torch.no_grad()
def draw_latents(network: nn.Module, steps: Steps, shots: Shard, shape: tuple[int, ...]) -> Tensor:
    """The latents f16 [N, 5, 16, h, w] that the student draws for a shard of shots."""
    drawn = []
    for rows in torch.arange(len(shots["seed"])).split(DRAWN_AT_ONCE):
        shot, scope = shots["shot"][rows].float().to(steps.device), shots["scope"][rows].to(steps.device)
        *_, last = steps.roll_out(network, shot, scope, steps.noise(shots["seed"][rows], shape))
        drawn.append(last.half().cpu())
    return torch.cat(drawn)


def motion_weights(latents: Tensor) -> Tensor:
    """Loss weights [B, 5, 1, h, w], mean 1, of latents [B, 5, C, h, w]: a constant plus the cell's change over time.

    Nine tenths of a picture are static and learned early; unweighted, they would dominate the loss.
    """
    change = latents.sub(latents.mean(1, keepdim=True)).square().mean(2, keepdim=True)
    relative = change / change.mean((1, 2, 3, 4), keepdim=True).clamp_min(1e-6)
    weights = 1.0 + relative.clamp_max(MAX_MOTION_RATIO)
    return weights / weights.mean()


def student_loss(
    network: nn.Module, steps: Steps, pairs: Rows, batch: int
) -> Callable[[int, torch.Generator], Iterator[Tensor]]:
    """The losses of an optimiser step, one for each of the student's steps; the last one weighs most."""

    def loss(_: int, generator: torch.Generator) -> Iterator[Tensor]:
        rows = pairs.stack(torch.randint(len(pairs), (batch,), generator=generator).tolist())
        target = rows["target"].float().to(steps.device)
        weights, shot = motion_weights(target), rows["shot"].float().to(steps.device)
        noise = steps.noise(rows["seed"], tuple(target.shape[1:]))
        for number, x0 in enumerate(steps.roll_out(network, shot, rows["scope"].to(steps.device), noise), start=1):
            yield number / len(steps.timesteps) * (weights * (x0 - target).square()).mean()

    return loss


def student_optimisers(network: nn.Module, steps: int, batch: int, rank: int) -> Optimisers:
    """As the denoiser's own training: Muon for the blocks' matrices; AdamW for the others, and for a low rank."""
    if rank:
        return Optimisers(network, PhaseConfig(steps, batch, LOW_RANK_LEARNING_RATE))
    return Optimisers(network, PhaseConfig(steps, batch, LEARNING_RATE, MUON_LEARNING_RATE))


def recompute_blocks(network: Denoiser) -> None:
    """Keeps only each block's input for the backward pass: a third more time, a fraction of the memory."""
    for block in network.blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


class LowRank(nn.Module):
    """A frozen linear layer plus a trained matrix of low rank, which is zero at first."""

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__()
        self.linear = linear
        self.down = nn.Parameter(torch.randn(rank, linear.in_features) / linear.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(linear.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        return cast(Tensor, self.linear(x)) + F.linear(F.linear(x, self.down), self.up)


def lower_rank(network: Denoiser, rank: int, dtype: torch.dtype = torch.bfloat16) -> None:
    """Freezes the network, its layers in `dtype`, and adds trained matrices of this rank to its blocks' large ones."""
    network.requires_grad_(False)
    for module in network.modules():
        if isinstance(module, nn.Linear):
            module.to(dtype)
    for block in network.blocks:
        assert isinstance(block, Block)
        for module, name in (
            (block.attention, "qkv"),
            (block.attention, "output"),
            (block, "mlp_in"),
            (block, "mlp_out"),
        ):
            setattr(module, name, LowRank(getattr(module, name), rank))


def trained_weights(network: nn.Module, stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The student's weights in the dtypes of the teacher's, `stored`; a difference of low rank is added to those."""
    if not any(isinstance(module, LowRank) for module in network.modules()):
        return {name: weight.detach().to("cpu", stored[name].dtype) for name, weight in network.named_parameters()}
    weights = dict(stored)
    for name, module in network.named_modules():
        if isinstance(module, LowRank):
            old = stored[f"{name}.weight"]
            weights[f"{name}.weight"] = (old.float() + (module.up @ module.down).detach().cpu()).to(old.dtype)
    return weights


def trained_bytes(network: nn.Module) -> int:
    """Memory of a training without activations: weights, and in float32 what each trained one needs beside it.

    That is its gradient, its average, and the optimiser's state: one number for Muon, two for AdamW.
    """
    total = sum(weight.nbytes for weight in network.parameters())
    low_rank = any(isinstance(module, LowRank) for module in network.modules())
    for name, weight in network.named_parameters():
        if weight.requires_grad:
            total += 4 * weight.numel() * (3 if weight.ndim > 1 and is_hidden(name) and not low_rank else 4)
    return total
