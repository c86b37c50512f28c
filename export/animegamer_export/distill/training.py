"""Training that may be stopped at any moment and continues from its last checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from animegamer_export.support.peak_memory import peak_mib

from .files import write_whole
from .optimiser import EMA_DECAY, Optimisers

SAVE_EVERY_S, REPORT_EVERY_S, FIRST_REPORT = 300.0, 60.0, 10
"""The first report, of speed, memory and the time left, is after step FIRST_REPORT."""


@dataclass(frozen=True, slots=True)
class Training:
    """What is trained, and where it is saved.

    loss: (step, generator) -> scalars whose gradients are added up, each computed before the next is asked for. All
    chance is the generator's, so a training that was interrupted ends as one that was not.
    """

    name: str
    network: nn.Module
    optimisers: Optimisers
    loss: Callable[[int, torch.Generator], Iterator[Tensor]]
    checkpoint: Path

    def run(self, log: Callable[[str], object] = print) -> None:
        """Trains to the end of the optimisers' phase; the network then has averaged weights.

        An interruption (KeyboardInterrupt) is passed on when the state is saved.
        """
        trained = {name: weight for name, weight in self.network.named_parameters() if weight.requires_grad}
        average = {name: weight.detach().clone() for name, weight in trained.items()}
        steps, first = self.optimisers.phase.steps, self._load(trained, average)
        started = saved = reported = time.monotonic()
        smooth, finished = 0.0, first
        try:
            for step in range(first, steps):
                total = 0.0
                for loss in self.loss(step, torch.Generator().manual_seed(step)):
                    loss.backward()
                    total += loss.item()
                self.optimisers.update(step)
                done, now, decay = step + 1 - first, time.monotonic(), min(EMA_DECAY, (1 + step) / (10 + step))
                torch._foreach_lerp_([*average.values()], [one.detach() for one in trained.values()], 1 - decay)
                finished = step + 1
                smooth += (total - smooth) / min(done, 100)
                if done == FIRST_REPORT or now - reported > REPORT_EVERY_S or step + 1 == steps:
                    each, reported = (now - started) / done, now
                    log(
                        f"{self.name} {step + 1}/{steps}: loss {smooth:.4f}, {each:.3f} s a step, {memory()}, "
                        f"{each * (steps - step - 1) / 3600:.2f} hours left"
                    )
                if now - saved > SAVE_EVERY_S:
                    self._save(finished, trained, average)
                    saved = now
        except KeyboardInterrupt:
            self._save(finished, trained, average)
            log(f"{self.name}: stopped after step {finished} of {steps}; run the same command to continue")
            raise
        if first < steps:
            self._save(steps, trained, average)
        _fill(trained, average)

    def _save(self, step: int, trained: Mapping[str, Tensor], average: Mapping[str, Tensor]) -> None:
        weights = {name: weight.detach() for name, weight in trained.items()}
        state = {"step": step, "weights": weights, "average": dict(average)}
        state["optimisers"] = self.optimisers.state()
        write_whole(self.checkpoint, partial(torch.save, state))

    def _load(self, trained: Mapping[str, Tensor], average: Mapping[str, Tensor]) -> int:
        """Fills everything from the checkpoint, if there is one; returns the number of steps done."""
        if not self.checkpoint.exists():
            return 0
        saved = torch.load(self.checkpoint, weights_only=True, map_location="cpu")
        _fill(trained, saved["weights"])
        _fill(average, saved["average"])
        self.optimisers.load(saved["optimisers"])
        return int(saved["step"])


@torch.no_grad()
def _fill(tensors: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        tensor.copy_(values[name])


def memory() -> str:
    """The peak memory so far, in words: of the GPU if one is used."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB of the GPU"
    peak = peak_mib()
    return "memory unknown" if peak is None else f"{peak / 1024:.1f} GiB"
