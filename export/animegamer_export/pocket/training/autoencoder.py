"""Train the pocket VAE: encoder and decoder on whole clips, then the decoder alone on frozen latents.

Group statistics of the decoder are per chunk, so it is trained on the same two chunks ([0:3], [3:5]) that it plays.
The encoder is frozen early: the denoiser can then be trained beside the decoder, and the decoder keeps improving.
Crops were poor because their group statistics differ, and single frames cost more a picture than clips (docs/LOG.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from animegamer_export.evaluate.metrics import psnr
from animegamer_export.pocket.config import Phase
from animegamer_rt.models.vae import CausalConv, LatentNorm, ResidualBlock, Stage, Upsample, VaeDecoder

from .frame_encoder import FrameEncoder
from .optimiser import Optimisers, autocast, device_of

KL_WEIGHT = 3e-4
GRADIENT_WEIGHT = 0.5
BUSTLE_WEIGHT = 6.0  # of the decoder's last steps
MOVING_WEIGHT = 4.0
LATENT_NOISE = 0.05  # the decoder also meets latents this far off, as a denoiser's will be
FIRST_CHUNK = 3  # latent frames; the rest is the second chunk
FIRST_CHUNK_FRAMES = 9
DRAWN_SHARE = 0.5  # of the decoder's last steps see latents as the denoiser draws them
ENCODED_AT_ONCE = 16
WHOLE_SHARE = 0.5  # of the decoder's steps see both chunks; the others see the first alone, at half the cost


def to_pixels(clips: np.ndarray, device: torch.device) -> Tensor:
    """uint8 [B, T, H, W, 3] -> float32 [B, 3, T, H, W] in -1..1, on the device."""
    return torch.from_numpy(np.array(clips)).to(device).permute(0, 4, 1, 2, 3).float().div_(127.5).sub_(1.0)


def decode_chunks(decoder: nn.Module, latent: Tensor) -> Tensor:
    """[B, 16, 5, h, w] -> [B, 3, 17, H, W] as at play: two chunks, the first one's caches handed to the second."""
    first, caches = decoder(latent[:, :, :FIRST_CHUNK], None)
    if latent.shape[2] <= FIRST_CHUNK:
        return torch.as_tensor(first)
    second, _ = decoder(latent[:, :, FIRST_CHUNK:], caches)
    return torch.cat([first, second], dim=2)


def reconstruction_loss(decoded: Tensor, pixels: Tensor) -> Tensor:
    """L1 and squared error, heavier where pixels move, plus L1 of the horizontal and vertical differences (edges)."""
    decoded = decoded.float()
    weight = 1.0 + MOVING_WEIGHT * _moving(pixels)
    error = decoded - pixels
    plain = (weight * (error.abs() + 2.0 * error.square())).mean() / weight.mean()
    across = (error[..., 1:] - error[..., :-1]).abs()
    down = (error[..., 1:, :] - error[..., :-1, :]).abs()
    edges = (weight[..., 1:] * across).mean() + (weight[..., 1:, :] * down).mean()
    return plain + GRADIENT_WEIGHT * edges / weight.mean()


def bustle_loss(decoded: Tensor, pixels: Tensor) -> Tensor:
    """How far off the amount of change is, around each fourth place, in time, down and across.

    Where something may be here or there, squared errors ask for a smear of both, of which little moves; by this one a
    smear is no nearer than either.
    """
    weight = 1.0 + MOVING_WEIGHT * _moving(pixels)[..., ::4, ::4]
    off = [(weight * (_bustle(decoded.float(), axis) - _bustle(pixels, axis)).abs()).mean() for axis in (2, 3, 4)]
    return torch.stack(off).sum() / weight.mean()


def _bustle(pixels: Tensor, axis: int) -> Tensor:
    """The mean change along an axis in 7 x 7 pixels around each fourth place of each frame: [B, 3, T, H / 4, W / 4]."""
    changes = pixels.diff(dim=axis, append=pixels.narrow(axis, pixels.shape[axis] - 1, 1)).abs()
    return F.avg_pool3d(changes, (1, 7, 7), stride=(1, 4, 4), padding=(0, 3, 3))


def _moving(pixels: Tensor) -> Tensor:
    """1 where the clip changes over time (grown by two pixels), 0 elsewhere: [B, 1, 1, H, W]."""
    change = (pixels.amax(dim=2) - pixels.amin(dim=2)).amax(dim=1, keepdim=True)
    return F.max_pool2d((change > 0.1).float(), 5, stride=1, padding=2).unsqueeze(2)


def start_plain(decoder: VaeDecoder) -> None:
    """Let every latent-conditioned norm start as a plain one (scale 1, shift 0), with a tenth of the usual projection.

    Left at the usual start the scales are about 0, signals vanish between blocks, and the loss stays on a plateau.
    """
    for module in decoder.modules():
        if isinstance(module, LatentNorm):
            for projection, bias in ((module.scale, 1.0), (module.shift, 0.0)):
                nn.init.constant_(torch.as_tensor(projection.bias), bias)
                with torch.no_grad():
                    projection.weight.mul_(0.1)


def decode_frames(decoder: VaeDecoder, latent: Tensor) -> Tensor:
    """Single frames: latent [B, 16, h, w] -> [B, 3, H, W], equal to decoding [B, 16, 1, h, w], forty times cheaper.

    Before a lone frame the first frame stands twice, so a causal convolution is a 2-D one with its taps summed.
    """

    def conv(layer: nn.Conv3d, x: Tensor, padding: int) -> Tensor:
        return F.conv2d(x, layer.weight.sum(2), layer.bias, padding=padding)

    def norm(layer: LatentNorm, x: Tensor) -> Tensor:
        size = x.shape[2:]
        scale, shift = (F.interpolate(conv(part, latent, 0), size=size) for part in (layer.scale, layer.shift))
        return F.silu(layer.norm(x) * scale + shift)

    def block(layer: ResidualBlock, x: Tensor) -> Tensor:
        hidden = conv(layer.conv_in, norm(layer.norm_in, x), 1)
        hidden = conv(layer.conv_out, norm(layer.norm_out, hidden), 1)
        return hidden + (conv(layer.shortcut, x, 0) if isinstance(layer.shortcut, nn.Conv3d) else x)

    x = conv(decoder.conv_in, latent, 1)
    blocks: list[tuple[nn.Module, Upsample | None]] = [(layer, None) for layer in decoder.middle]
    for stage in (cast(Stage, module) for module in decoder.stages):
        blocks += [(layer, None) for layer in stage.blocks]
        blocks[-1] = (blocks[-1][0], stage.upsample)
    for layer, upsample in blocks:
        x = block(cast(ResidualBlock, layer), x)
        if upsample is not None:
            x = conv(upsample.conv, F.interpolate(x, scale_factor=2.0), 1)
    return conv(decoder.conv_out, norm(decoder.norm_out, x), 1)


@torch.no_grad()
def settle_taps(decoder: VaeDecoder) -> None:
    """After single frames: let every causal convolution look at the present frame alone, as a start for clips."""
    for module in decoder.modules():
        if isinstance(module, CausalConv):
            module.weight[:, :, -1] = module.weight.sum(2)
            module.weight[:, :, :-1] = 0.0


def train_frames(
    encoder: FrameEncoder, decoder: VaeDecoder, clips: np.ndarray, phase: Phase, seed: int
) -> Iterator[dict[str, float]]:
    """Encoder and decoder together, on single frames: the pictures are learned here, the motion later."""

    def draw(rng: np.random.Generator) -> np.ndarray:
        rows, moments = rng.integers(0, len(clips), phase.batch), rng.integers(0, clips.shape[1], phase.batch)
        return np.stack([clips[row, moment, None] for row, moment in zip(rows, moments, strict=True)])

    def decode(latent: Tensor) -> Tensor:
        return decode_frames(decoder, latent[:, :, 0].contiguous(memory_format=torch.channels_last)).unsqueeze(2)

    yield from _train_both(encoder, decoder, draw, decode, phase, seed)


def train_autoencoder(
    encoder: FrameEncoder, decoder: VaeDecoder, clips: np.ndarray, phase: Phase, seed: int
) -> Iterator[dict[str, float]]:
    """Encoder and decoder together, on whole clips."""

    def draw(rng: np.random.Generator) -> np.ndarray:
        drawn: np.ndarray = clips[np.sort(rng.choice(len(clips), phase.batch, replace=phase.batch > len(clips)))]
        return drawn

    def decode(latent: Tensor) -> Tensor:
        return decode_chunks(decoder, latent.contiguous(memory_format=torch.channels_last_3d))

    yield from _train_both(encoder, decoder, draw, decode, phase, seed)


def _train_both(
    encoder: FrameEncoder,
    decoder: VaeDecoder,
    draw: Callable[[np.random.Generator], np.ndarray],
    decode: Callable[[Tensor], Tensor],
    phase: Phase,
    seed: int,
) -> Iterator[dict[str, float]]:
    """draw: the clips of a step, uint8 [B, T, H, W, 3]; decode: a latent of theirs -> [B, 3, T, H, W]."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    optimisers, device = Optimisers(nn.ModuleList([encoder, decoder]), phase), device_of(decoder)
    for step in range(phase.steps):
        pixels = to_pixels(draw(rng), device)
        with autocast(device):
            mean, log_variance = encoder(pixels)
            decoded = decode(mean + torch.randn_like(mean) * (0.5 * log_variance).exp())
        loss = reconstruction_loss(decoded, pixels)
        kl = 0.5 * (mean.square() + log_variance.exp() - 1.0 - log_variance).mean()
        optimisers.step(loss + KL_WEIGHT * kl, step)
        yield {"reconstruction": loss.item(), "kl_nats": kl.item()}


@dataclass(frozen=True, slots=True)
class Drawn:
    """Clips as the denoiser draws them: `latents` float16 [M, 16, 5, h, w], like the encoder's, of `rows`."""

    rows: np.ndarray
    latents: np.ndarray


def train_decoder(
    decoder: VaeDecoder,
    latents: np.ndarray,
    clips: np.ndarray,
    phase: Phase,
    ema: AveragedModel,
    seed: int,
    drawn: Drawn | None = None,
) -> Iterator[dict[str, float]]:
    """The decoder alone, on the encoder's mean latents [N, 16, 5, h, w] with a little noise; half of them as `drawn`.

    What the denoiser draws under guidance is stronger than what the encoder writes, and without `drawn` the decoder
    first meets it at play. With it, the loss asks for as much change as the clip has, too.
    """
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    optimisers, device = Optimisers(decoder, phase), device_of(decoder)
    for step in range(phase.steps):
        if drawn is None or rng.random() >= DRAWN_SHARE:
            chosen = np.sort(rng.choice(len(clips), phase.batch, replace=phase.batch > len(clips)))
            means = latents[chosen]
        else:
            picked = rng.choice(len(drawn.rows), phase.batch, replace=phase.batch > len(drawn.rows))
            chosen, means = drawn.rows[picked], drawn.latents[picked]
        whole = bool(rng.random() < WHOLE_SHARE)
        pixels = to_pixels(clips[chosen] if whole else clips[chosen, :FIRST_CHUNK_FRAMES], device)
        latent = torch.from_numpy(means if whole else means[:, :, :FIRST_CHUNK]).to(device).float()
        latent = latent + LATENT_NOISE * latent.std() * torch.randn_like(latent)
        with autocast(device):
            decoded = decode_chunks(decoder, latent.contiguous(memory_format=torch.channels_last_3d))
        loss = reconstruction_loss(decoded, pixels)
        if drawn is not None:
            loss = loss + BUSTLE_WEIGHT * bustle_loss(decoded, pixels)
        optimisers.step(loss, step)
        ema.update_parameters(decoder)
        yield {"reconstruction": loss.item()}


@torch.no_grad()
def encode_all(encoder: FrameEncoder, clips: np.ndarray) -> np.ndarray:
    """The mean latent of every clip, float16 [N, 16, 5, h, w]."""
    parts, device = [], device_of(encoder)
    for start in range(0, len(clips), ENCODED_AT_ONCE):
        with autocast(device):
            mean, _ = encoder(to_pixels(clips[start : start + ENCODED_AT_ONCE], device))
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
