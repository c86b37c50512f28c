"""Trains the reader on endless games of the language corpus, resuming interrupted runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from animegamer_export.distill.optimiser import PhaseConfig, autocast, exponential_average, learning_rate_factor
from animegamer_export.distill.progress import Progress
from animegamer_pocket.training import checkpoint
from animegamer_pocket.world.scene import CHARACTERS
from animegamer_rt.backends.interface import NOTES

from .model import Reader
from .samples import NOT_JUDGED, batches, stack

WEIGHT_DECAY = 0.02
WEIGHTS = {"people": 4.0, "clothes": 3.0, "motion": 2.0, "level": 0.7, "place": 1.5, "night": 1.0, "position": 1.5}


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


def train_reader(path: Path, phase: PhaseConfig, seed: int = 1) -> Reader:
    """Trains and saves the averaged weights to `path`. An existing file is loaded instead."""
    if not path.exists():
        torch.manual_seed(seed)
        reader = Reader()
        average = exponential_average(reader)
        progress = Progress("reader", phase.steps, path.with_suffix(".state"), seed)
        progress.run(_losses(reader, average, phase, progress))
        checkpoint.save(path, ("average", average.module))
    return load_reader(path)


def _losses(
    reader: Reader, average: AveragedModel, phase: PhaseConfig, progress: Progress
) -> Iterator[dict[str, float]]:
    optimizer = torch.optim.AdamW(
        reader.parameters(), lr=phase.learning_rate, betas=(0.9, 0.98), weight_decay=WEIGHT_DECAY
    )
    progress.resume(reader=reader.train(), average=average, optimizer=optimizer)
    source = batches(progress.seed * 1_000_003 + progress.finished, phase.batch)
    for step in progress.remaining():
        for group in optimizer.param_groups:
            group["lr"] = phase.learning_rate * learning_rate_factor(step, phase)
        features, scene, mask, truth, unknown = (torch.from_numpy(array) for array in stack(next(source)))
        with autocast(torch.device("cpu")):
            logits = reader(features, scene, mask)
        loss = loss_of(logits, truth, unknown, mask)
        loss.backward()
        nn.utils.clip_grad_norm_(reader.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        average.update_parameters(reader)
        yield {"loss": float(loss.detach())}


def load_reader(path: Path) -> Reader:
    """The averaged weights that `train_reader` wrote."""
    reader = Reader()
    checkpoint.load(path, ("average", reader))
    return reader.eval()
