"""The light decoder: learns from the full decoder's frames of the latents that the student draws.

It starts as one linear map, solved by least squares, and the convolutions around it learn the rest. The last steps
round activations and weights as its 8-bit form does, because rounding makes what stands still flicker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from animegamer_export.parts.denoiser import MAX_WEIGHT_CODE
from animegamer_export.parts.light_decoder import MAX_CODE, MIN_RANGE, activation_ranges
from animegamer_rt.models.light_decoder import FRAMES_EACH, LightDecoder, Residual, with_before

from .frame_loss import change_loss, reconstruction_loss
from .optimiser import Optimisers, PhaseConfig, autocast
from .turns import Rows

BATCH = 4
"""Pairs of following latent frames, so that the step between them is in the loss."""
LEARNING_RATE, MUON_LEARNING_RATE = 1e-3, 0.025
BRANCH_GAIN = 0.1
"""Of a residual branch's last weights at the start."""
RIDGE, START_CLIPS = 1e-3, 200
ROUNDED_SHARE, RANGE_EVERY, RANGE_CLIPS = 0.25, 200, 16
"""Share of the steps, the last ones, with 8-bit rounding; ranges of activations are taken anew every so many steps."""
STILL, LEAST_MOTION = 16 / 127.5, 1e-3
EXACT = ("", "linear", "out")
"""What the 8-bit form does not round; of these the input alone is, which hardly matters."""


def pairs(clips: Rows, generator: torch.Generator, count: int) -> tuple[Tensor, Tensor]:
    """Random pairs of latent frames, each behind the one before, [2 * count, 32, h, w], and their video frames.

    Those are f32 [count, 3, 8, H, W] in -1..1; the three of a clip's first latent frame that are not shown are taken to
    be like the fourth.
    """
    given, shown = [], []
    for clip in torch.randint(len(clips), (count,), generator=generator).tolist():
        latents, frames = clips[clip]["latent"].float(), clips[clip]["frames"]
        first = int(torch.randint(len(latents) - 1, (), generator=generator))
        given.append(with_before(latents, None)[first : first + 2])
        wanted = (torch.arange(2 * FRAMES_EACH) + FRAMES_EACH * (first - 1) + 1).clamp_min(0)
        shown.append(frames[wanted].permute(3, 0, 1, 2))
    return torch.cat(given), torch.stack(shown).float().div_(127.5).sub_(1.0)


@torch.no_grad()
def start(decoder: LightDecoder, clips: Rows, seed: int = 0) -> None:
    """Initial weights: `linear` by least squares, everything behind it zero or small."""
    torch.manual_seed(seed)
    for module in decoder.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            nn.init.normal_(module.bias, std=1e-3) if module.bias is not None else None
        if isinstance(module, Residual):
            module.b.weight.mul_(BRANCH_GAIN)
    decoder.out.weight.zero_()
    channels, pixels = decoder.linear.in_channels, decoder.linear.out_channels
    inside, outside = (torch.zeros(channels + 1, size, dtype=torch.float64) for size in (channels + 1, pixels))
    for index in range(min(len(clips), START_CLIPS)):
        latents, frames = clips[index]["latent"].float(), clips[index]["frames"]
        given = with_before(latents, None)[1:].movedim(1, -1).reshape(-1, channels)
        given = torch.cat([given, torch.ones(len(given), 1)], dim=1).double()
        shown = frames[1:].permute(0, 3, 1, 2).float().div(127.5).sub(1.0)
        shown = shown.unflatten(0, (-1, FRAMES_EACH)).flatten(1, 2)
        inside += given.T @ given
        outside += given.T @ F.pixel_unshuffle(shown, decoder.size.upscale).movedim(1, -1).flatten(0, 2).double()
    solved = torch.linalg.solve(inside + RIDGE * inside.diagonal().mean() * torch.eye(len(inside)), outside).T
    assert decoder.linear.bias is not None
    decoder.linear.weight.copy_(solved[:, :-1, None, None])
    decoder.linear.bias.copy_(solved[:, -1])


def decoder_optimisers(decoder: LightDecoder, steps: int) -> Optimisers:
    """Muon for the convolutions, AdamW for the linear map and the biases."""
    phase = PhaseConfig(steps, BATCH, LEARNING_RATE, MUON_LEARNING_RATE, final_ratio=0.01)
    return Optimisers(decoder, phase, by_muon=lambda name: not name.startswith("linear"))


def decoder_loss(decoder: LightDecoder, clips: Rows, steps: int) -> Callable[[int, torch.Generator], Iterator[Tensor]]:
    """The loss of a step, from its number and chance."""
    device = decoder.linear.weight.device
    ranges: dict[str, tuple[float, float]] = {}

    def loss(step: int, generator: torch.Generator) -> Iterator[Tensor]:
        given, shown = (one.to(device) for one in pairs(clips, generator, BATCH))
        given, progress = given.contiguous(memory_format=torch.channels_last), step / steps
        rounds = progress >= 1.0 - ROUNDED_SHARE
        if rounds and (not ranges or step % RANGE_EVERY == 0):
            ranges.update(_ranges(decoder, clips))
        with autocast(device):
            decoded = decode_rounded(decoder, given, ranges) if rounds else decoder.decode(given)
        frames = decoded.float().unflatten(0, (BATCH, -1)).unflatten(2, (FRAMES_EACH, -1)).flatten(1, 2).transpose(1, 2)
        yield frames_loss(frames, shown, progress)

    return loss


def frames_loss(frames: Tensor, shown: Tensor, progress: float) -> Tensor:
    """Of frames f32 [B, 3, T, H, W]. Amounts of change count more towards the end, when places are right.

    Reducing flicker alone makes everything move less, hence `lack`.
    """
    late = max(0.0, 3.0 * progress - 2.0)
    grey, true = frames.mean(1, keepdim=True), shown.mean(1, keepdim=True)
    changes, true_changes = frames.diff(dim=2), shown.diff(dim=2)
    still = (true.amax(2, keepdim=True) - true.amin(2, keepdim=True) < STILL).float()
    flicker = (changes.abs() * still).mean()
    motion, true_motion = (((1.0 - still) * one.abs()).mean((1, 2, 3, 4)) for one in (changes, true_changes))
    lack = ((motion - true_motion).abs() / true_motion.clamp_min(LEAST_MOTION)).mean()
    loss = reconstruction_loss(frames, shown) + 1.5 * (changes - true_changes).abs().mean()
    return loss + (0.5 + 2.0 * late) * change_loss(grey, true) + late * (3.0 * flicker + 0.15 * lack)


@torch.no_grad()
def _ranges(decoder: LightDecoder, clips: Rows) -> dict[str, tuple[float, float]]:
    device, few = decoder.linear.weight.device, range(min(len(clips), RANGE_CLIPS))
    return activation_ranges(decoder, [clips[index]["latent"][None].float().to(device) for index in few])


def decode_rounded(decoder: LightDecoder, given: Tensor, ranges: Mapping[str, tuple[float, float]]) -> Tensor:
    """`LightDecoder.decode` with what its 8-bit form rounds rounded; gradients pass as if it were not."""
    weights = {}
    for name, weight in decoder.named_parameters():
        if name.endswith("weight") and not name.startswith(("linear", "out")):
            scale = weight.detach().abs().amax((1, 2, 3), keepdim=True).clamp_min(MIN_RANGE) / MAX_WEIGHT_CODE
            weights[f"decoder.{name}"] = _straight_through(weight, torch.round(weight / scale) * scale)
    with _rounding(decoder, ranges):
        decoded: Tensor = functional_call(_Decode(decoder), weights, given)
    return decoded


class _Decode(nn.Module):
    """`LightDecoder.decode` as a module's own function."""

    def __init__(self, decoder: LightDecoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, given: Tensor) -> Tensor:
        return self.decoder.decode(given)


@contextmanager
def _rounding(decoder: LightDecoder, ranges: Mapping[str, tuple[float, float]]) -> Iterator[None]:
    """Inside, every layer that the 8-bit form quantises gives rounded numbers."""

    def rounded(name: str) -> Callable[[nn.Module, object, Tensor], Tensor]:
        low, high = min(ranges[name][0], 0.0), max(ranges[name][1], 0.0)
        scale = max(high - low, MIN_RANGE) / MAX_CODE
        zero = round(-low / scale)

        def round_to_code(module: nn.Module, inputs: object, x: Tensor) -> Tensor:
            inside = x.clamp(-zero * scale, (MAX_CODE - zero) * scale)
            return _straight_through(inside, torch.round(inside / scale) * scale)

        return round_to_code

    hooks = [
        module.register_forward_hook(rounded(name))
        for name, module in decoder.named_modules()
        if name in ranges and name not in EXACT
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _straight_through(x: Tensor, rounded: Tensor) -> Tensor:
    return x + (rounded - x).detach()
