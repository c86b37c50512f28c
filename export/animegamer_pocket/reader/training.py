"""Trains the reader on endless games of the language corpus, resuming interrupted runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from animegamer_export.distill.optimiser import PhaseConfig, autocast, exponential_average, learning_rate_factor
from animegamer_pocket.world.scene import CHARACTERS
from animegamer_rt.backends.interface import NOTES

from .model import Reader
from .samples import NOT_JUDGED, Sample, batches, stack

WEIGHT_DECAY = 0.02
WEIGHTS = {"people": 4.0, "clothes": 3.0, "motion": 2.0, "level": 0.7, "place": 1.5, "night": 1.0, "position": 1.5}
SAVE_EVERY_S, REPORT_EVERY_S = 120.0, 20.0


def loss_of(logits: tuple[Tensor, ...], truth: Tensor, unknown: Tensor, mask: Tensor) -> Tensor:
    """The weighted cross entropies of all heads, of `refused` and `notes`, and of `unknown` over the words."""
    people = len(CHARACTERS)
    scene, told = truth.split((2 * people + 5, people + len(NOTES)), 1)
    columns = [scene[:, :people], scene[:, people : 2 * people], *scene[:, 2 * people :].unbind(1)]
    total = torch.zeros(())
    for (_, weight), head, column in zip(WEIGHTS.items(), logits, columns, strict=False):
        total = total + weight * nn.functional.cross_entropy(
            head.float().reshape(-1, head.shape[-1]), column.reshape(-1), ignore_index=NOT_JUDGED
        )
    bce = nn.functional.binary_cross_entropy_with_logits
    said = bce(torch.cat(logits[-3:-1], 1).float(), told.float(), reduction="none").sum(1).mean()
    flags = bce(logits[-1].float(), unknown, reduction="none")
    return total + said + (flags * mask).sum() / mask.sum()


def tensors(batch: list[Sample]) -> tuple[Tensor, ...]:
    """A batch as tensors."""
    return tuple(torch.from_numpy(array) for array in stack(batch))


def train_reader(path: Path, phase: PhaseConfig, seed: int = 1) -> Reader:
    """Trains to the phase's end and writes the averaged weights to `path`; resumes from the step saved there."""
    torch.manual_seed(seed)
    reader = Reader().train()
    average = exponential_average(reader)
    optimizer = torch.optim.AdamW(
        reader.parameters(), lr=phase.learning_rate, betas=(0.9, 0.98), weight_decay=WEIGHT_DECAY
    )
    done = 0
    if path.exists():
        saved = torch.load(path, weights_only=True)
        reader.load_state_dict(saved["reader"])
        average.module.load_state_dict(saved["average"])
        average.n_averaged.fill_(saved["step"])
        optimizer.load_state_dict(saved["optimizer"])
        done = saved["step"]
    source = batches(seed * 1_000_003 + done, phase.batch)
    started = saved_at = reported = time.monotonic()
    smooth = 0.0
    steps = phase.steps
    for step in range(done, steps):
        rate = phase.learning_rate * learning_rate_factor(step, phase)
        for group in optimizer.param_groups:
            group["lr"] = rate
        features, scene, mask, truth, unknown = tensors(next(source))
        with autocast(torch.device("cpu")):
            logits = reader(features, scene, mask)
        loss = loss_of(logits, truth, unknown, mask)
        loss.backward()
        nn.utils.clip_grad_norm_(reader.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        average.update_parameters(reader)
        found = float(loss.detach())
        smooth = found if step == done else 0.98 * smooth + 0.02 * found
        now = time.monotonic()
        if now - reported > REPORT_EVERY_S or step + 1 == steps:
            reported = now
            left = (now - started) / (step + 1 - done) * (steps - step - 1)
            print(f"reader {step + 1}/{steps}  loss {smooth:.4f}  {left:.0f} s left", flush=True)
        if now - saved_at > SAVE_EVERY_S or step + 1 == steps:
            saved_at = now
            _save(path, reader, average.module, optimizer, step + 1)
    return cast(Reader, average.module).eval()


def _save(path: Path, reader: nn.Module, average: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    state = {
        "reader": reader.state_dict(),
        "average": average.state_dict(),
        "optimizer": optimizer.state_dict(),
        "step": step,
    }
    torch.save(state, unfinished)
    unfinished.replace(path)


def load_reader(path: Path) -> Reader:
    """The averaged weights that `train` wrote."""
    reader = Reader()
    reader.load_state_dict(torch.load(path, weights_only=True)["average"])
    return reader.eval()
