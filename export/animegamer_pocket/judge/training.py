"""Trains the judge on rendered and generated clips, mixed and damaged (damage.py), then blurred and noised.

Generated clips have no level target, because a bundle
moves less than instructed.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from animegamer_export.distill.optimiser import autocast
from animegamer_export.distill.progress import Progress
from animegamer_pocket.world.sampling import sample_scene
from animegamer_pocket.world.scene import CHARACTERS, MOTIONS, OUTFITS, PLACES, WIDTH, Scene

from .damage import IGNORED, Example, Material, Mixer
from .generated import read_parts
from .model import Network
from .reading import COLUMNS, SEEN_FRAMES
from .shown import Frames, Mask, Shown, figure_mask, render_half

BATCH, PEAK_RATE = 16, 1.5e-3
_COLUMN_PX = WIDTH / COLUMNS
_SPREAD = 1.2  # columns: width of the bump that marks a figure in `where`


@dataclasses.dataclass(frozen=True, slots=True)
class Targets:
    """Targets of a batch; IGNORED where unknown.

    counts [B, 5]; where [B, 5, 36], 0..1; outfits [B, 5, 36]; offsets [B, 5, 2, 36], NaN: ignored; the others [B].
    """

    counts: Tensor
    where: Tensor
    outfits: Tensor
    offsets: Tensor
    smeared: Tensor
    place: Tensor
    night: Tensor
    motion: Tensor
    level: Tensor


def targets(examples: Sequence[Example]) -> Targets:
    """The targets of examples."""
    size = len(examples), len(CHARACTERS)
    counts = np.zeros(size, np.int64)
    where = np.zeros((*size, COLUMNS), np.float32)
    outfits = np.full((*size, COLUMNS), IGNORED, np.int64)
    offsets = np.full((*size, 2, COLUMNS), np.nan, np.float32)
    middles = (np.arange(COLUMNS) + 0.5) * _COLUMN_PX
    for row, example in enumerate(examples):
        for figure in example.shown.figures:
            index = CHARACTERS.index(figure.name)
            away = middles - (figure.start_x + figure.end_x) / 2
            bump = np.exp(-((away / _COLUMN_PX / _SPREAD) ** 2) / 2)
            counts[row, index] = min(2, counts[row, index] + 1)
            where[row, index] = np.maximum(where[row, index], bump)
            near = bump > 0.6
            outfits[row, index, near] = OUTFITS.index(figure.outfit)
            if not example.drawn:
                offsets[row, index, 0, near] = (figure.start_x - middles[near]) / WIDTH
                offsets[row, index, 1, near] = (figure.end_x - middles[near]) / WIDTH
        for name in example.unsure:
            counts[row, CHARACTERS.index(name)] = IGNORED
            where[row, CHARACTERS.index(name)] = IGNORED
    shown = [example.shown for example in examples]
    levels = [IGNORED if e.drawn or e.shown.level is None else e.shown.level - 1 for e in examples]
    return Targets(
        counts=torch.from_numpy(counts),
        where=torch.from_numpy(where),
        outfits=torch.from_numpy(outfits),
        offsets=torch.from_numpy(offsets),
        smeared=torch.tensor([float(IGNORED if one.smeared is None else one.smeared) for one in shown]),
        place=torch.tensor([PLACES.index(one.place) for one in shown]),
        night=torch.tensor([float(one.night) for one in shown]),
        motion=torch.tensor([IGNORED if one.motion is None else MOTIONS.index(one.motion) for one in shown]),
        level=torch.tensor(levels),
    )


def judge_loss(found: Sequence[Tensor], truth: Targets) -> Tensor:
    """The weighted sum of the losses of all outputs."""
    counts, where, outfits, offsets, smeared, place, night, motion, level = found

    def entropy(logits: Tensor, chosen: Tensor, smoothing: float = 0.0) -> Tensor:
        summed = F.cross_entropy(logits, chosen, ignore_index=IGNORED, label_smoothing=smoothing, reduction="sum")
        return summed / max(1, int((chosen != IGNORED).sum()))

    def binary(logits: Tensor, chosen: Tensor) -> Tensor:
        known = chosen != IGNORED
        return F.binary_cross_entropy_with_logits(logits[known], chosen[known], reduction="sum") / len(chosen)

    total = 3 * entropy(counts.flatten(0, 1), truth.counts.flatten()) + 0.2 * binary(where, truth.where)
    total = total + 0.7 * entropy(outfits.transpose(1, 2).flatten(2), truth.outfits.flatten(1))
    known = ~truth.offsets.isnan()
    total = total + 8 * (offsets[known] - truth.offsets[known]).abs().sum() / max(1, int(known.sum()))
    total = total + 1.5 * binary(smeared[:, 0], truth.smeared) + entropy(place, truth.place)
    total = total + binary(night[:, 0], truth.night) + 1.5 * entropy(motion, truth.motion, 0.05)
    return total + 0.7 * entropy(level, truth.level, 0.05)


def degrade(frames: Tensor, generator: torch.Generator) -> Tensor:
    """Blur, noise and lighting changes like a small VAE's: float [B, 9, 3, 48, 72], -1..1 -> [B, 27, 48, 72]."""
    batch, seen, channels, height, width = frames.shape

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return torch.rand(shape or (batch, 1, 1, 1), generator=generator) * (high - low) + low

    flat = frames.reshape(batch, seen * channels, height, width)
    small = float(uniform(0.45, 1.0, 1))
    blurred = F.interpolate(flat, scale_factor=small, mode="bilinear", antialias=True)
    blurred = F.interpolate(blurred, size=(height, width), mode="bilinear")
    flat = flat + uniform(0.0, 1.0) * (uniform(0.0, 1.0) < 0.6) * (blurred - flat)
    by_frame = flat.reshape(frames.shape)
    earlier = torch.cat([by_frame[:, :1], by_frame[:, :-1]], dim=1)
    trail = uniform(0.0, 0.25, batch, 1, 1, 1, 1) * (uniform(0.0, 1.0, batch, 1, 1, 1, 1) < 0.3)
    flat = (by_frame + trail * (earlier - by_frame)).reshape(flat.shape)
    flat = flat * uniform(0.85, 1.12) + uniform(-0.1, 0.1)
    noise = torch.randn(4, *flat.shape[1:], generator=generator)  # Only a few, because drawing noise is slow.
    coarse = F.interpolate(noise[:, :, ::8, ::8], size=(height, width), mode="bilinear")
    chosen = torch.randint(0, len(noise), (batch,), generator=generator)
    return (flat + uniform(0.0, 0.07) * coarse[chosen] + uniform(0.0, 0.05) * noise[chosen]).clamp(-1, 1)


def rendered_material(scenes: Sequence[Scene]) -> tuple[Frames, Mask, list[Shown]]:
    """Rendered clips of scenes as material: judged frames, masks, contents."""
    frames, masks = [], []
    for start in range(0, len(scenes), 64):
        part = scenes[start : start + 64]
        halves = render_half(part)[:, list(SEEN_FRAMES)]
        frames.append(halves)
        masks += [figure_mask(clip, scene.place, scene.night) for clip, scene in zip(halves, part, strict=True)]
    return np.concatenate(frames), np.stack(masks), [Shown.of(scene) for scene in scenes]


def drawn_material(folder: Path) -> tuple[Frames, Mask, list[Shown]]:
    """Generated clips of a folder as material. Masks are widened, because a bundle does not draw exactly in place."""
    halves, masks, shown = read_parts(folder)
    seen, kernel = list(SEEN_FRAMES), np.ones((5, 5), np.uint8)
    wide = np.stack([[cv2.dilate(frame.astype(np.uint8), kernel) > 0 for frame in clip] for clip in masks[:, seen]])
    return halves[:, seen], wide, shown


def gather(renders: int, drawn: Path | None, seed: int, train: bool = True) -> Material:
    """Material of random renders and of a folder of generated clips (None: renders only)."""
    rng = random.Random(seed)
    scenes = [sample_scene(rng, train) for _ in range(renders)]
    parts = [(rendered_material(scenes), False)] if scenes else []
    if drawn is not None:
        parts.append((drawn_material(drawn), True))
    return Material(
        np.concatenate([frames for (frames, _, _), _ in parts]),
        np.concatenate([masks for (_, masks, _), _ in parts]),
        [one for (_, _, shown), _ in parts for one in shown],
        np.concatenate([np.full(len(shown), is_drawn) for (_, _, shown), is_drawn in parts]),
    )


def batch_of(examples: Sequence[Example]) -> Tensor:
    """Examples as float [B, 9, 3, 48, 72], -1..1."""
    frames = torch.from_numpy(np.stack([example.frames for example in examples]))
    return frames.permute(0, 1, 4, 2, 3) / 127.5 - 1


def train(material: Material, steps: int, seed: int, state: Path) -> Network:
    """Trains a judge, resuming from `state`."""
    torch.manual_seed(seed)
    network: Network = Network().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    progress = Progress("judge", steps, state, seed)
    progress.run(_losses(network.train(), material, progress))
    return network.eval()


def _losses(network: Network, material: Material, progress: Progress) -> Iterator[dict[str, float]]:
    optimizer = torch.optim.AdamW(network.parameters(), lr=PEAK_RATE, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK_RATE, total_steps=progress.steps, pct_start=0.08)
    progress.resume(network=network, optimizer=optimizer, schedule=schedule)
    start = progress.seed + progress.finished
    mixer, generator = Mixer(material, start), torch.Generator().manual_seed(start)
    for _ in progress.remaining():
        examples = [mixer.example() for _ in range(BATCH)]
        clips = degrade(batch_of(examples), generator)
        with autocast(torch.device("cpu")):
            found = network(clips.contiguous(memory_format=torch.channels_last))
        loss = judge_loss([group.float() for group in found], targets(examples))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 5.0)
        optimizer.step()
        schedule.step()
        yield {"loss": loss.item()}
