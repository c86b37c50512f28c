"""Trains pocket's denoiser: with its shot encoder first (phase one), then alone on predicted shots too (phase three).

v-prediction on the runtime's noise schedule (zero terminal SNR). One clip in ten gets the unconditional shot, for
classifier-free guidance. Source: MODEL.md sections 1, 4, 5; the paper's phases one and three.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from animegamer_export.distill.optimiser import Optimisers, PhaseConfig, autocast, device_of
from animegamer_export.distill.progress import Progress
from animegamer_export.distill.student import motion_weights
from animegamer_pocket.towers import ImageTower, TextTower
from animegamer_rt.bundle.denoise_plan import DenoisePlan
from animegamer_rt.bundle.noise_schedule import full_signal_levels
from animegamer_rt.models.denoiser import Denoiser
from animegamer_rt.models.denoiser_step import advance
from animegamer_rt.models.encoder import Encoder

CONDITION_DROPOUT = 0.1
PREDICTED_SHARE = 0.5  # of the clips of phase three get the predicted shot, the others the encoder's
GENERATION_BATCH = 8
TIMESTEP_POWER = 0.65
"""Phase three draws timesteps as 1000 u ** 0.65, more of them noisy, where layout and motion are decided."""


@dataclass(frozen=True, slots=True)
class DenoiserExamples:
    """Training examples, one row per clip.

    latents: float16 [N, 5, 16, h, w], unit variance. motion_scopes: float32 [N]. motion_ids: int64 [N, 30]. pictures:
    uint8 [N, H, W, 3], the first frames. predicted: the predictor's shots, float16 [N, 226, D]; None in phase one.
    """

    latents: np.ndarray
    motion_scopes: np.ndarray
    motion_ids: np.ndarray
    pictures: np.ndarray
    predicted: np.ndarray | None = None


class ShotEncoder(nn.Module):
    """Towers and encoder together: motion ids and a first frame -> shot."""

    def __init__(self, text_tower: TextTower, encoder: Encoder) -> None:
        super().__init__()
        self.text_tower = text_tower
        self.image_tower = ImageTower()
        self.encoder = encoder

    def forward(self, motion_ids: Tensor, pictures: Tensor) -> Tensor:
        """ids int64 [B, 30], pictures float32 [B, 3, H, W] in -1..1 -> [B, 226, D]."""
        shot: Tensor = self.encoder(self.text_tower(motion_ids), self.image_tower(pictures))
        return shot


def to_pictures(frames: np.ndarray, device: torch.device) -> Tensor:
    """uint8 [B, H, W, 3] -> float32 [B, 3, H, W] in -1..1, on the device."""
    return torch.from_numpy(np.array(frames)).to(device).permute(0, 3, 1, 2).float().div_(127.5).sub_(1.0)


def add_noise(latents: Tensor, signal: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """The network's input x_t and target v, shaped like latents; signal [B] is the level a, with a^2 + sigma^2 = 1."""
    a = signal.view(-1, 1, 1, 1, 1)
    sigma = (1.0 - a.square()).sqrt()
    return a * latents + sigma * noise, a * noise - sigma * latents


def motion_probabilities(latents: np.ndarray) -> np.ndarray:
    """Sampling probabilities [N] of clips with latents [N, 5, C, h, w]: half uniform, half by change over time."""
    moves = np.asarray([np.asarray(clip, np.float32).var(axis=0).mean() for clip in latents])
    probabilities: np.ndarray = 0.5 / len(moves) + 0.5 * moves / moves.sum()
    return probabilities


def denoiser_loss(
    denoiser: nn.Module,
    latents: Tensor,
    timesteps: Tensor,
    scopes: Tensor,
    shots: Tensor,
    noise: Tensor,
    weights: Tensor | None = None,
) -> Tensor:
    """Mean squared error of v at integer timesteps [B]; weights: None or from `motion_weights`. A scalar."""
    signals = torch.from_numpy(np.asarray(full_signal_levels(), dtype=np.float32)).to(latents.device)
    x, target = add_noise(latents, signals[timesteps], noise)
    with autocast(latents.device):
        v: Tensor = denoiser(x, timesteps.float(), scopes, shots)
    errors = (v.float() - target).square()
    return errors.mean() if weights is None else (errors * weights).mean()


def train_denoiser(
    denoiser: Denoiser,
    shot_encoder: ShotEncoder,
    examples: DenoiserExamples,
    phase: PhaseConfig,
    ema: AveragedModel,
    progress: Progress,
) -> Iterator[dict[str, float]]:
    """Phase one (no predicted shots: encoder and denoiser train together) or three (only the denoiser trains).

    ema: the average of nn.ModuleList([denoiser, shot_encoder]). Yields each step's loss.
    """
    adapting = examples.predicted is not None
    networks = nn.ModuleList([denoiser, shot_encoder])
    shot_encoder.requires_grad_(not adapting)
    optimisers, device = Optimisers(denoiser if adapting else networks, phase), device_of(denoiser)
    progress.resume(networks=networks, ema=ema, optimisers=optimisers)
    count = len(examples.latents)
    probabilities = motion_probabilities(examples.latents) if adapting else None
    for step in progress.remaining():
        rng = np.random.default_rng((progress.seed, step))
        rows = np.sort(rng.choice(count, phase.batch, replace=phase.batch > count, p=probabilities))
        latents = torch.from_numpy(examples.latents[rows]).to(device).float()
        motion_ids = torch.from_numpy(examples.motion_ids[rows]).to(device)
        shots = shot_encoder(motion_ids, to_pictures(examples.pictures[rows], device))
        if examples.predicted is not None:
            swap = torch.from_numpy(rng.random(phase.batch) < PREDICTED_SHARE).to(device).view(-1, 1, 1)
            shots = torch.where(swap, torch.from_numpy(examples.predicted[rows]).to(device).float(), shots)
        drop = torch.from_numpy(rng.random(phase.batch) < CONDITION_DROPOUT).to(device).view(-1, 1, 1)
        shots = torch.where(drop, shot_encoder.encoder.unconditional().expand_as(shots), shots)
        timesteps = _stratified_timesteps(rng, phase.batch, TIMESTEP_POWER if adapting else 1.0).to(device)
        scopes = torch.from_numpy(examples.motion_scopes[rows]).to(device)
        weights = motion_weights(latents) if adapting else None
        loss = denoiser_loss(denoiser, latents, timesteps, scopes, shots, torch.randn_like(latents), weights)
        optimisers.step(loss, step)
        ema.update_parameters(networks)
        yield {"v_loss": loss.item()}


def _stratified_timesteps(rng: np.random.Generator, batch: int, power: float) -> Tensor:
    """One timestep in each of `batch` equally likely parts of 0..999: the same mean, less variance between steps."""
    drawn = (np.arange(batch) + rng.random(batch)) / batch
    return torch.from_numpy((1000 * drawn**power).astype(np.int64).clip(0, 999))


@torch.no_grad()
def held_out_loss(denoiser: nn.Module, shot_encoder: nn.Module, examples: DenoiserExamples) -> float:
    """The v loss of held-out examples, with fixed noise, over twenty timesteps."""
    torch.manual_seed(1)
    total, device = 0.0, device_of(denoiser)
    latents = torch.from_numpy(examples.latents).to(device).float()
    motion_ids = torch.from_numpy(examples.motion_ids).to(device)
    shots = shot_encoder(motion_ids, to_pictures(examples.pictures, device))
    scopes = torch.from_numpy(examples.motion_scopes).to(device)
    for timestep in range(25, 1000, 50):
        times = torch.full((len(latents),), timestep, dtype=torch.int64, device=device)
        noise = torch.randn_like(latents)
        total += denoiser_loss(denoiser, latents, times, scopes, shots, noise).item()
    return total / 20


@torch.no_grad()
def generate_latents(
    denoiser: Denoiser,
    shot_encoder: ShotEncoder,
    shots: np.ndarray,
    examples: DenoiserExamples,
    plan: DenoisePlan,
    seed: int,
) -> np.ndarray:
    """Generates a latent for each of shots [N, 226, D] by a plan: float16 [N, 5, 16, h, w], unit variance."""
    torch.manual_seed(seed)
    device, generated = device_of(denoiser), np.empty((len(shots), *examples.latents.shape[1:]), np.float16)
    denoiser.eval()
    for start in range(0, len(shots), GENERATION_BATCH):
        rows = slice(start, start + GENERATION_BATCH)
        conditional = torch.from_numpy(shots[rows].astype(np.float32)).to(device)
        unconditional = shot_encoder.encoder.unconditional().expand_as(conditional)
        scopes = torch.from_numpy(examples.motion_scopes[rows]).to(device)
        latent = torch.randn(1, len(conditional), *generated.shape[1:], device=device)
        x0 = difference = torch.zeros_like(latent)
        for step, coefficients in zip(plan, torch.from_numpy(plan.coefficients()).to(device), strict=True):
            branches, noise = len(step.rows), torch.randn_like(latent)
            timesteps = torch.full((branches * len(conditional),), float(step.timestep), device=device)
            conditions = torch.cat([unconditional, conditional][-branches:])
            with autocast(device):
                v = denoiser(latent[0].repeat(branches, 1, 1, 1, 1), timesteps, scopes.repeat(branches), conditions)
            v = v.float().unflatten(0, (branches, -1))
            latent, x0, difference = advance(v, latent, x0, noise, difference, coefficients.unbind(0))
        generated[rows] = latent[0].half().cpu().numpy()
    return generated
