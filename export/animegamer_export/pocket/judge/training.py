"""Trains the judge on rendered clips, degraded as generated clips are.

    python -m animegamer_export.pocket.judge.training --clips 6000 --out judge.pt

Training clips have no held-out combination. The printed accuracy is of clips that all have one.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from animegamer_export.pocket.training.optimiser import autocast
from animegamer_export.pocket.world.clips import render_many
from animegamer_export.pocket.world.sampling import sample_scenes
from animegamer_export.pocket.world.scene import CHARACTERS, MOTIONS, OUTFITS, PLACES, WIDTH, Scene

from .model import SEEN_FRAMES, Judge, judge_input, read_clips, save_judge

_BATCH = 32
_PEAK_RATE = 2e-3


def targets(scenes: Sequence[Scene]) -> tuple[Tensor, ...]:
    """The targets of scenes: characters [N, 5], outfits [N, 5] (-100: absent), place, night, motion [N], x [N, 2]."""
    who = torch.zeros(len(scenes), len(CHARACTERS))
    worn = torch.full((len(scenes), len(CHARACTERS)), -100)
    for row, scene in enumerate(scenes):
        for name, outfit in zip(scene.characters, scene.outfits, strict=True):
            who[row, CHARACTERS.index(name)] = 1
            worn[row, CHARACTERS.index(name)] = OUTFITS.index(outfit)
    place = torch.tensor([PLACES.index(scene.place) for scene in scenes])
    night = torch.tensor([float(scene.night) for scene in scenes])
    motion = torch.tensor([MOTIONS.index(scene.motion) for scene in scenes])
    where = torch.tensor([[scene.start_x / WIDTH, scene.end_x / WIDTH] for scene in scenes])
    return who, worn, place, night, motion, where


def judge_loss(groups: Sequence[Tensor], truth: Sequence[Tensor]) -> Tensor:
    """The weighted sum of the losses of all outputs; truth: as of `targets`."""
    who, worn, place, night, motion, where = groups
    entropy = nn.functional.cross_entropy
    binary = nn.functional.binary_cross_entropy_with_logits
    total = binary(who, truth[0]) * 4 + binary(night[:, 0], truth[3])
    total = total + entropy(worn.reshape(-1, len(OUTFITS)), truth[1].reshape(-1), ignore_index=-100)
    total = total + entropy(place, truth[2]) + 2 * entropy(motion, truth[4], label_smoothing=0.05)
    return total + 20 * nn.functional.mse_loss(where, truth[5])


def degrade(frames: Tensor, generator: torch.Generator) -> Tensor:
    """Augment a batch with the faults of a small VAE or denoiser: blur, ghosts of earlier frames, noise, contrast."""
    batch, channels, height, width = frames.shape

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return torch.rand(shape or (batch, 1, 1, 1), generator=generator) * (high - low) + low

    small = float(uniform(0.45, 1.0, 1))
    blurred = nn.functional.interpolate(frames, scale_factor=small, mode="bilinear", antialias=True)
    blurred = nn.functional.interpolate(blurred, size=(height, width), mode="bilinear")
    share = uniform(0.0, 1.0) * (uniform(0.0, 1.0) < 0.7)
    frames = frames + share * (blurred - frames)
    by_frame = frames.reshape(batch, len(SEEN_FRAMES), 3, height, width)
    earlier = torch.cat([by_frame[:, :1], by_frame[:, :-1]], dim=1)
    ghost = uniform(0.0, 0.35, batch, 1, 1, 1, 1) * (uniform(0.0, 1.0, batch, 1, 1, 1, 1) < 0.4)
    frames = (by_frame + ghost * (earlier - by_frame)).reshape(batch, channels, height, width)
    frames = frames * uniform(0.8, 1.15) + uniform(-0.12, 0.12)
    coarse = torch.randn(batch, channels, height // 8, width // 8, generator=generator)
    coarse = nn.functional.interpolate(coarse, size=(height, width), mode="bilinear")
    fine = torch.randn(frames.shape, generator=generator)
    return (frames + uniform(0.0, 0.08) * coarse + uniform(0.0, 0.06) * fine).clamp(-1, 1)


def train_judge(clips: npt.NDArray[np.uint8], scenes: Sequence[Scene], epochs: int = 8, seed: int = 0) -> Judge:
    """Train a judge on rendered clips, in bfloat16 where the processor gains from it."""
    torch.manual_seed(seed)
    judge = Judge()
    stacked = torch.cat([_bytes(clips[start : start + 64]) for start in range(0, len(clips), 64)])
    truth = targets(scenes)
    steps = max(1, epochs * len(scenes) // _BATCH)
    optimizer = torch.optim.AdamW(judge.parameters(), lr=_PEAK_RATE, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _PEAK_RATE, total_steps=steps, pct_start=0.1)
    picker, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    judge.train()
    for _ in range(steps):
        rows = sorted(picker.sample(range(len(scenes)), min(_BATCH, len(scenes))))
        frames = degrade(stacked[rows].float() / 127.5 - 1, generator)
        with autocast(torch.device("cpu")):
            groups = judge(frames)
        value = judge_loss(groups, [part[rows] for part in truth])
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(value)
        optimizer.step()
        schedule.step()
    return judge.eval()


def _bytes(clips: npt.NDArray[np.uint8]) -> Tensor:
    """The judge's input as bytes, 62 MB per thousand clips."""
    return ((judge_input(clips) + 1) * 127.5).round().to(torch.uint8)


def judge_scenes(count: int, seed: int) -> list[Scene]:
    """Training scenes, half of them with two characters, which are harder."""
    scenes = sample_scenes(3 * count, seed)
    pairs = [scene for scene in scenes if scene.is_pair][: count // 2]
    return pairs + [scene for scene in scenes if not scene.is_pair][: count - len(pairs)]


def accuracy(judge: Judge, clips: npt.NDArray[np.uint8], scenes: Sequence[Scene]) -> dict[str, float]:
    """The share of clips read right, by field; `position_error_px` is the mean error of start_x."""
    readings = read_clips(judge, clips)
    pairs = list(zip(readings, scenes, strict=True))
    right = {
        "characters": [reading.characters == frozenset(scene.characters) for reading, scene in pairs],
        "outfits": [
            reading.outfits == dict(zip(scene.characters, scene.outfits, strict=True)) for reading, scene in pairs
        ],
        "place": [reading.place == scene.place for reading, scene in pairs],
        "day_or_night": [reading.night == scene.night for reading, scene in pairs],
        "motion": [reading.motion == scene.motion for reading, scene in pairs],
    }
    shares = {name: round(float(np.mean(values)), 4) for name, values in right.items()}
    error = float(np.mean([abs(reading.start_x - scene.start_x) for reading, scene in pairs]))
    return {**shares, "position_error_px": round(error, 2)}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Train the judge of the pocket world.")
    parser.add_argument("--clips", type=int, default=6000)
    parser.add_argument("--held-out-clips", type=int, default=300)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    started = time.perf_counter()
    scenes = judge_scenes(arguments.clips, arguments.seed)
    judge = train_judge(render_many(scenes, arguments.processes), scenes, arguments.epochs, arguments.seed)
    save_judge(judge, arguments.out)
    held_out = sample_scenes(arguments.held_out_clips, arguments.seed + 1, train=False)
    figures = accuracy(judge, render_many(held_out, arguments.processes), held_out)
    record = {
        "clips": arguments.clips,
        "held_out_clips": len(held_out),
        "held_out_accuracy": figures,
        "seconds": round(time.perf_counter() - started),
    }
    arguments.out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record))


if __name__ == "__main__":
    main()
