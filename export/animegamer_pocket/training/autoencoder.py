"""Trains pocket's VAE: encoder and decoder together, then the decoder alone on latents of the frozen encoder.

The decoder's group norms take statistics of a chunk, so training decodes the same two chunks ([0:3], [3:5]) as play.
The encoder is frozen early, so that the denoiser can be trained while the decoder improves. Training on crops was
worse, because their group statistics differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from animegamer_export.distill.frame_loss import change_loss, reconstruction_loss
from animegamer_export.distill.optimiser import Optimisers, PhaseConfig, autocast, device_of
from animegamer_export.distill.progress import Progress
from animegamer_export.evaluate.metrics import psnr
from animegamer_rt.models.vae import VaeDecoder

from .decoder_start import decode_frames
from .vae_encoder import VaeEncoder

KL_WEIGHT = 3e-4
CHANGE_WEIGHT = 6.0  # in the decoder's last phase
LATENT_NOISE = 0.05  # noise on latents / their standard deviation, because generated latents are inexact
FIRST_CHUNK = 3  # latent frames; the second chunk has the rest
FIRST_CHUNK_FRAMES = 9
GENERATED_SHARE = 0.5  # of the steps of the decoder's last phase train on generated latents
ENCODE_BATCH = 16
BOTH_CHUNKS_SHARE = 0.5  # of the decoder's steps decode both chunks; the others only the first, at half the cost


def to_pixels(clips: np.ndarray, device: torch.device) -> Tensor:
    """uint8 [B, T, H, W, 3] -> float32 [B, 3, T, H, W] in -1..1, on the device."""
    return torch.from_numpy(np.array(clips)).to(device).permute(0, 4, 1, 2, 3).float().div_(127.5).sub_(1.0)


def decode_chunks(decoder: nn.Module, latent: Tensor) -> Tensor:
    """[B, 16, 5, h, w] -> [B, 3, 17, H, W] in two chunks, the second with the first one's caches."""
    first, caches = decoder(latent[:, :, :FIRST_CHUNK], None)
    if latent.shape[2] <= FIRST_CHUNK:
        return torch.as_tensor(first)
    second, _ = decoder(latent[:, :, FIRST_CHUNK:], caches)
    return torch.cat([first, second], dim=2)


def train_frames(
    encoder: VaeEncoder, decoder: VaeDecoder, clips: np.ndarray, phase: PhaseConfig, progress: Progress
) -> Iterator[dict[str, float]]:
    """Trains encoder and decoder together on single frames; motion is learned later. Yields each step's losses."""

    def pick(rng: np.random.Generator) -> np.ndarray:
        rows, moments = rng.integers(0, len(clips), phase.batch), rng.integers(0, clips.shape[1], phase.batch)
        return np.stack([clips[row, moment, None] for row, moment in zip(rows, moments, strict=True)])

    def decode(latent: Tensor) -> Tensor:
        return decode_frames(decoder, latent[:, :, 0].contiguous(memory_format=torch.channels_last)).unsqueeze(2)

    yield from _train_both(encoder, decoder, pick, decode, phase, progress)


def train_autoencoder(
    encoder: VaeEncoder, decoder: VaeDecoder, clips: np.ndarray, phase: PhaseConfig, progress: Progress
) -> Iterator[dict[str, float]]:
    """Trains encoder and decoder together on whole clips, uint8 [N, 17, H, W, 3]. Yields each step's losses."""

    def pick(rng: np.random.Generator) -> np.ndarray:
        picked: np.ndarray = clips[np.sort(rng.choice(len(clips), phase.batch, replace=phase.batch > len(clips)))]
        return picked

    def decode(latent: Tensor) -> Tensor:
        return decode_chunks(decoder, latent.contiguous(memory_format=torch.channels_last_3d))

    yield from _train_both(encoder, decoder, pick, decode, phase, progress)


def _train_both(
    encoder: VaeEncoder,
    decoder: VaeDecoder,
    pick: Callable[[np.random.Generator], np.ndarray],
    decode: Callable[[Tensor], Tensor],
    phase: PhaseConfig,
    progress: Progress,
) -> Iterator[dict[str, float]]:
    """pick: a step's clips, uint8 [B, T, H, W, 3]; decode: their latent -> [B, 3, T, H, W]."""
    networks, device = nn.ModuleList([encoder, decoder]), device_of(decoder)
    optimisers = Optimisers(networks, phase)
    progress.resume(networks=networks, optimisers=optimisers)
    for step in progress.remaining():
        pixels = to_pixels(pick(np.random.default_rng((progress.seed, step))), device)
        with autocast(device):
            mean, log_variance = encoder(pixels)
            decoded = decode(mean + torch.randn_like(mean) * (0.5 * log_variance).exp())
        loss = reconstruction_loss(decoded, pixels)
        kl = 0.5 * (mean.square() + log_variance.exp() - 1.0 - log_variance).mean()
        optimisers.step(loss + KL_WEIGHT * kl, step)
        yield {"reconstruction": loss.item(), "kl_nats": kl.item()}


@dataclass(frozen=True, slots=True)
class GeneratedLatents:
    """Latents that the denoiser generated, float16 [M, 16, 5, h, w], scaled as the encoder's, and their clips' rows."""

    rows: np.ndarray
    latents: np.ndarray


def train_decoder(
    decoder: VaeDecoder,
    latents: np.ndarray,
    clips: np.ndarray,
    phase: PhaseConfig,
    ema: AveragedModel,
    progress: Progress,
    generated: GeneratedLatents | None = None,
) -> Iterator[dict[str, float]]:
    """Trains the decoder alone on mean latents [N, 16, 5, h, w] with a little noise. Yields each step's loss.

    With `generated` half of the steps use its latents, and the loss includes `change_loss`. Guidance makes generated
    latents stronger than the encoder's, so a decoder trained without them would first meet them at play.
    """
    optimisers, device = Optimisers(decoder, phase), device_of(decoder)
    progress.resume(network=decoder, ema=ema, optimisers=optimisers)
    for step in progress.remaining():
        rng = np.random.default_rng((progress.seed, step))
        if generated is None or rng.random() >= GENERATED_SHARE:
            chosen = np.sort(rng.choice(len(clips), phase.batch, replace=phase.batch > len(clips)))
            means = latents[chosen]
        else:
            picked = rng.choice(len(generated.rows), phase.batch, replace=phase.batch > len(generated.rows))
            chosen, means = generated.rows[picked], generated.latents[picked]
        whole = bool(rng.random() < BOTH_CHUNKS_SHARE)
        pixels = to_pixels(clips[chosen] if whole else clips[chosen, :FIRST_CHUNK_FRAMES], device)
        latent = torch.from_numpy(means if whole else means[:, :, :FIRST_CHUNK]).to(device).float()
        latent = latent + LATENT_NOISE * latent.std() * torch.randn_like(latent)
        with autocast(device):
            decoded = decode_chunks(decoder, latent.contiguous(memory_format=torch.channels_last_3d))
        loss = reconstruction_loss(decoded, pixels)
        if generated is not None:
            loss = loss + CHANGE_WEIGHT * change_loss(decoded, pixels)
        optimisers.step(loss, step)
        ema.update_parameters(decoder)
        yield {"reconstruction": loss.item()}


@torch.no_grad()
def encode_all(encoder: VaeEncoder, clips: np.ndarray) -> np.ndarray:
    """The mean latents of clips uint8 [N, 17, H, W, 3]: float16 [N, 16, 5, h, w]."""
    parts, device = [], device_of(encoder)
    for start in range(0, len(clips), ENCODE_BATCH):
        with autocast(device):
            mean, _ = encoder(to_pixels(clips[start : start + ENCODE_BATCH], device))
        parts.append(mean.half().cpu().numpy())
    return np.concatenate(parts)


@torch.no_grad()
def psnr_db(decoder: VaeDecoder, latents: np.ndarray, clips: np.ndarray) -> np.ndarray:
    """Peak signal-to-noise ratio of each clip after decoding its latent, in dB: float64 [N]."""
    values, device = [], device_of(decoder)
    for latent, clip in zip(latents, clips, strict=True):
        with autocast(device):
            decoded = decode_chunks(decoder, torch.from_numpy(latent[None]).to(device).float())
        frames = ((decoded.float().clamp(-1, 1) + 1) * 127.5).floor()[0].permute(1, 2, 3, 0).cpu().numpy()
        values.append(psnr(frames, clip))
    return np.asarray(values)
