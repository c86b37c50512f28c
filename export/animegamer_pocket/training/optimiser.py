"""Shared by all training phases: optimisers, learning-rate schedule, mixed precision and averaged weights."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from animegamer_pocket.config import PhaseConfig

WARMUP_SHARE = 0.03
EMA_DECAY = 0.995  # final decay of the weights' moving average
MUON_WEIGHT_DECAY = 0.01
CLIP_NORM = 1.0
PRODUCT_SIDE, PRODUCT_REPEATS = 256, 3  # size of the product timed in float32 and in bfloat16


class Optimisers:
    """AdamW, and Muon for the 2-D weights of transformer blocks; both warm up and then decay linearly."""

    def __init__(self, module: nn.Module, phase: PhaseConfig) -> None:
        self.phase = phase
        named = [(name, weight) for name, weight in module.named_parameters() if weight.requires_grad]
        matrices = [w for n, w in named if phase.muon_learning_rate > 0 and w.ndim == 2 and _is_hidden(n)]
        chosen = {id(weight) for weight in matrices}
        others = [weight for _, weight in named if id(weight) not in chosen]
        self._pairs: list[tuple[torch.optim.Optimizer, float]] = [
            (torch.optim.AdamW(others, betas=(0.9, 0.99), weight_decay=0.0), phase.learning_rate)
        ]
        if matrices:
            muon = torch.optim.Muon(matrices, weight_decay=MUON_WEIGHT_DECAY)
            self._pairs.append((muon, phase.muon_learning_rate))
        self._weights = [weight for _, weight in named]

    def step(self, loss: Tensor, step: int) -> None:
        """Backpropagates and updates every weight at the learning rate of `step` (from 0)."""
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._weights, CLIP_NORM)
        factor = learning_rate_factor(step, self.phase)
        for optimiser, top in self._pairs:
            for group in optimiser.param_groups:
                group["lr"] = top * factor
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)


def _is_hidden(name: str) -> bool:
    """Whether a weight is inside transformer blocks. AdamW trains embeddings, heads and adaLN."""
    return "blocks." in name and "modulation" not in name and "embed" not in name


def learning_rate_factor(step: int, phase: PhaseConfig) -> float:
    """Learning rate / peak: linear warm-up over the first 3 % of the steps, then linear decay to `final_ratio`."""
    warmup = max(1, round(phase.steps * WARMUP_SHARE))
    left = max(0.0, (phase.steps - step) / max(1, phase.steps - warmup))
    return min((step + 1) / warmup, phase.final_ratio + (1.0 - phase.final_ratio) * left)


def device_of(module: nn.Module) -> torch.device:
    """The device of the module's weights."""
    return next(module.parameters()).device


def autocast(device: torch.device) -> torch.autocast:
    """bfloat16 products with float32 weights; float32 on a CPU that is slower in bfloat16."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type != "cpu" or cpu_gains_from_bfloat16())


@cache
def cpu_gains_from_bfloat16() -> bool:
    """Whether a bfloat16 product is at least as fast as a float32 one on this processor, measured once.

    With AMX it takes a third of the time, without bfloat16 instructions about a hundred times as long.
    """
    taken = {}
    for dtype in (torch.float32, torch.bfloat16):
        matrix = torch.ones(PRODUCT_SIDE, PRODUCT_SIDE, dtype=dtype)
        seconds = []
        for _ in range(PRODUCT_REPEATS):
            started = time.perf_counter()
            torch.mm(matrix, matrix)
            seconds.append(time.perf_counter() - started)
        taken[dtype] = min(seconds)
    return taken[torch.bfloat16] <= taken[torch.float32]


def exponential_average(module: nn.Module) -> AveragedModel:
    """An exponential moving average of the module's weights; `.module` is the averaged network, which ships.

    The decay rate grows over the first steps, so that a short phase does not ship its initial weights.
    """

    def average(means: Sequence[Tensor], new: Sequence[Tensor], count: Tensor | int) -> None:
        decay = min(EMA_DECAY, (1.0 + float(count)) / (10.0 + float(count)))
        for mean, weight in zip(means, new, strict=True):
            mean.lerp_(weight, 1.0 - decay)

    return AveragedModel(module, multi_avg_fn=average, use_buffers=False)
