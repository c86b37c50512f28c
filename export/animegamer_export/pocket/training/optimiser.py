"""What every training phase shares: learning rates, optimisers, averaged weights, progress lines, saved phases.

A phase is a generator of losses; this room knows nothing of what is being trained.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from animegamer_export.pocket.config import Phase

WARMUP_SHARE = 0.03
AVERAGE_DECAY = 0.995  # of the weights' moving average, once it is long enough
MATRIX_DECAY = 0.01
CLIP_NORM = 1.0


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
