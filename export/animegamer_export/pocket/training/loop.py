"""What every training phase shares: learning rates, optimisers, averaged weights, progress lines, saved phases.

A phase is a generator of losses; this room knows nothing of what is being trained.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from animegamer_export.pocket.config import Phase

WARMUP_SHARE = 0.03
AVERAGE_DECAY = 0.995  # of the weights' moving average, once it is long enough
MATRIX_DECAY = 0.01
CLIP_NORM = 1.0
REPORT_EVERY_S = 20.0


class Optimisers:
    """AdamW, with Muon beside it for the 2-D weights of transformer blocks, on one warm-up and one linear decay."""

    def __init__(self, module: nn.Module, phase: Phase) -> None:
        self.phase = phase
        named = [(name, weight) for name, weight in module.named_parameters() if weight.requires_grad]
        matrices = [w for n, w in named if phase.matrix_learning_rate > 0 and w.ndim == 2 and _is_hidden(n)]
        chosen = {id(weight) for weight in matrices}
        others = [weight for _, weight in named if id(weight) not in chosen]
        self._pairs: list[tuple[torch.optim.Optimizer, float]] = [
            (torch.optim.AdamW(others, betas=(0.9, 0.99), weight_decay=0.0), phase.learning_rate)
        ]
        if matrices:
            muon = torch.optim.Muon(matrices, weight_decay=MATRIX_DECAY)
            self._pairs.append((muon, phase.matrix_learning_rate))
        self._weights = [weight for _, weight in named]

    def step(self, loss: Tensor, step: int) -> None:
        """Back-propagate and update every weight at the learning rate of `step` (0-based)."""
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._weights, CLIP_NORM)
        factor = learning_rate_factor(step, self.phase)
        for optimiser, top in self._pairs:
            for group in optimiser.param_groups:
                group["lr"] = top * factor
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)


def _is_hidden(name: str) -> bool:
    """True for the weights inside transformer blocks: embeddings, heads and adaLN stay with AdamW."""
    return "blocks." in name and "modulation" not in name and "embed" not in name


def learning_rate_factor(step: int, phase: Phase) -> float:
    """Linear warm-up over the first 3 % of the steps, then one linear decay to the phase's final share."""
    warmup = max(1, round(phase.steps * WARMUP_SHARE))
    left = max(0.0, (phase.steps - step) / max(1, phase.steps - warmup))
    return min((step + 1) / warmup, phase.final_share + (1.0 - phase.final_share) * left)


def device_of(module: nn.Module) -> torch.device:
    """Where the module's weights lie; a batch has to be brought there."""
    return next(module.parameters()).device


def autocast(device: torch.device) -> torch.autocast:
    """bfloat16 products, float32 weights."""
    return torch.autocast(device.type, dtype=torch.bfloat16)


def averaged(module: nn.Module) -> AveragedModel:
    """An exponential moving average of the module's weights; its `.module` is what ships.

    The average starts short and grows: a short phase would otherwise ship its first steps' weights, too.
    """

    def average(kept: Sequence[Tensor], new: Sequence[Tensor], count: Tensor | int) -> None:
        decay = min(AVERAGE_DECAY, (1.0 + float(count)) / (10.0 + float(count)))
        for mean, weight in zip(kept, new, strict=True):
            mean.lerp_(weight, 1.0 - decay)

    return AveragedModel(module, multi_avg_fn=average, use_buffers=False)


def run(name: str, losses: Iterator[dict[str, float]], steps: int) -> None:
    """Drain a phase, printing a line every twenty seconds: step, smoothed losses, seconds left."""
    started = reported = time.monotonic()
    smooth: dict[str, float] = {}
    for step, loss in enumerate(losses):
        for key, value in loss.items():
            smooth[key] = value if key not in smooth else 0.95 * smooth[key] + 0.05 * value
        now = time.monotonic()
        if now - reported > REPORT_EVERY_S or step + 1 == steps:
            reported = now
            left = (now - started) / (step + 1) * (steps - step - 1)
            shown = "  ".join(f"{key} {value:.4f}" for key, value in smooth.items())
            print(f"{name} {step + 1}/{steps}  {shown}  {left:.0f} s left", flush=True)


def save(path: Path, *modules: tuple[str, nn.Module], **facts: object) -> None:
    """Write the modules' weights and the facts about them; whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = {name: module.state_dict() for name, module in modules}
    whole["facts"] = {"json": json.dumps(facts)}
    unfinished = path.with_suffix(".part")
    torch.save(whole, unfinished)
    unfinished.replace(path)


def load(path: Path, *modules: tuple[str, nn.Module]) -> dict[str, object]:
    """Load weights saved by `save` into the modules; gives back the facts."""
    whole = torch.load(path, weights_only=True, map_location="cpu")
    for name, module in modules:
        module.load_state_dict(whole[name])
    facts: dict[str, object] = json.loads(whole["facts"]["json"])
    return facts
