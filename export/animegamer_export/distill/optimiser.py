"""Shared by all training: optimisers, learning-rate schedule, mixed precision and averaged weights."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

WARMUP_SHARE = 0.03
EMA_DECAY = 0.995  # final decay of the weights' moving average
MUON_WEIGHT_DECAY = 0.01
CLIP_NORM = 1.0
PRODUCT_SIDE, PRODUCT_REPEATS = 256, 3  # size of the product timed in float32 and in bfloat16


@dataclass(frozen=True, slots=True)
class PhaseConfig:
    """One training phase: optimiser steps, clips (or games) per step, and the peak learning rates."""

    steps: int
    batch: int
    learning_rate: float
    muon_learning_rate: float = 0.0  # of the weights that Muon trains; 0: AdamW trains them too
    final_ratio: float = 0.0  # learning rate after the last step / peak learning rate


def is_hidden(name: str) -> bool:
    """Whether a weight is inside transformer blocks. AdamW trains embeddings, heads and adaLN."""
    return "blocks." in name and "modulation" not in name and "embed" not in name


class Optimisers:
    """AdamW, and Muon for matrices and convolutions of the network's inside; both warm up and then decay linearly."""

    def __init__(self, module: nn.Module, phase: PhaseConfig, by_muon: Callable[[str], bool] = is_hidden) -> None:
        """by_muon: whether Muon trains the weight of this name, if it has more than one dimension."""
        self.phase = phase
        named = [(name, weight) for name, weight in module.named_parameters() if weight.requires_grad]
        chosen = [w for n, w in named if phase.muon_learning_rate > 0 and w.ndim > 1 and by_muon(n)]
        known = {id(weight) for weight in chosen}
        others = [weight for _, weight in named if id(weight) not in known]
        self._pairs: list[tuple[torch.optim.Optimizer, float]] = [
            (torch.optim.AdamW(others, betas=(0.9, 0.99), weight_decay=0.0), phase.learning_rate)
        ]
        # torch's Muon takes matrices only: a convolution's weights share their memory with one, or `view` fails.
        self._matrices = [(weight, weight.detach().view(len(weight), -1)) for weight in chosen]
        if chosen:
            muon = torch.optim.Muon([matrix for _, matrix in self._matrices], weight_decay=MUON_WEIGHT_DECAY)
            self._pairs.append((muon, phase.muon_learning_rate))
        self._weights = [weight for _, weight in named]

    def step(self, loss: Tensor, step: int) -> None:
        """Backpropagates and updates every weight at the learning rate of `step` (from 0)."""
        loss.backward()
        self.update(step)

    def update(self, step: int) -> None:
        """Updates every weight by its gradient, and clears the gradients."""
        torch.nn.utils.clip_grad_norm_(self._weights, CLIP_NORM)
        for weight, matrix in self._matrices:
            matrix.grad = None if weight.grad is None else weight.grad.flatten(1)
        factor = learning_rate_factor(step, self.phase)
        for optimiser, top in self._pairs:
            for group in optimiser.param_groups:
                group["lr"] = top * factor
            optimiser.step()
        for weight in self._weights:
            weight.grad = None

    def state_dict(self) -> dict[str, Any]:
        """The optimisers' state, for a checkpoint."""
        return {str(index): optimiser.state_dict() for index, (optimiser, _) in enumerate(self._pairs)}

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """The inverse of `state_dict`."""
        for index, (optimiser, _) in enumerate(self._pairs):
            optimiser.load_state_dict(state_dict[str(index)])


def learning_rate_factor(step: int, phase: PhaseConfig) -> float:
    """Learning rate / peak: linear warm-up over the first 3 % of the steps, then linear decay to `final_ratio`."""
    warmup = max(1, round(phase.steps * WARMUP_SHARE))
    left = max(0.0, (phase.steps - step) / max(1, phase.steps - warmup))
    return min((step + 1) / warmup, phase.final_ratio + (1.0 - phase.final_ratio) * left)


def device_of(module: nn.Module) -> torch.device:
    """The device of the module's weights."""
    return next(module.parameters()).device


def product_dtype(device: torch.device) -> torch.dtype:
    """bfloat16; float32 on a CPU that is slower in bfloat16."""
    return torch.bfloat16 if device.type != "cpu" or cpu_gains_from_bfloat16() else torch.float32


def autocast(device: torch.device) -> torch.autocast:
    """Products of float32 weights in `product_dtype`."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=product_dtype(device) is torch.bfloat16)


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
