"""A training that may end at any moment and goes on at its last checkpoint."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch

from animegamer_export.support.peak_memory import peak_mib

from .files import earlier, write_whole

SAVE_EVERY_S, REPORT_EVERY_S, FIRST_REPORT = 300.0, 60.0, 10
"""The first report, of speed, memory and the time left, is after step FIRST_REPORT."""


class Stateful(Protocol):
    """Anything that a checkpoint holds: a network, averaged weights, optimisers, a schedule."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> object: ...


class Progress:
    """The steps of a training, and its checkpoint. `finished`: how many steps are done.

    Each step seeds torch's own chance by `seed` + its number. If all other chance depends on seed and step too, a
    training that was interrupted ends as one that was not.
    """

    def __init__(self, name: str, steps: int, checkpoint: Path, seed: int = 0) -> None:
        self.name, self.steps, self.seed = name, steps, seed
        self._checkpoint, self.finished = checkpoint, 0
        self._parts: dict[str, Stateful] = {}

    def resume(self, **parts: Stateful) -> None:
        """Sets all that the training changes to the checkpoint's state, if there is one. Comes before `remaining`."""
        if self._checkpoint.exists():
            with earlier(self._checkpoint):
                saved = torch.load(self._checkpoint, weights_only=True, map_location="cpu")
            for name, part in parts.items():
                part.load_state_dict(saved[name])
            self.finished = int(saved["step"])
        self._parts = parts

    def remaining(self) -> Iterator[int]:
        """The numbers of the steps left, from 0."""
        for step in range(self.finished, self.steps):
            torch.manual_seed(self.seed + step)
            yield step

    def run(self, losses: Iterator[dict[str, float]]) -> None:
        """Runs the training to its end. losses: of each step of `remaining`, when all has changed; printed smoothed.

        Ctrl-C ends it behind the step that runs, saved, with KeyboardInterrupt; a second Ctrl-C at once.
        """
        started = saved = reported = time.monotonic()
        smooth: dict[str, float] = {}
        asked = False

        def stop_soon(*_: object) -> None:
            nonlocal asked
            asked = True
            signal.signal(signal.SIGINT, before)

        before = signal.getsignal(signal.SIGINT)
        if before != signal.SIG_IGN:  # as that of a shell's background job
            signal.signal(signal.SIGINT, stop_soon)
        try:
            for done, found in enumerate(losses, start=1):
                self.finished += 1
                now, is_last = time.monotonic(), self.finished == self.steps
                for name, loss in found.items():
                    smooth[name] = smooth.get(name, loss) + (loss - smooth.get(name, loss)) / min(done, 100)
                if done == FIRST_REPORT or now - reported > REPORT_EVERY_S or is_last:
                    reported = now
                    self._report(smooth, (now - started) / done)
                stop = asked  # once: Ctrl-C may come while this step is saved
                if now - saved > SAVE_EVERY_S or is_last or stop:
                    self._save()
                    saved = now
                if stop:
                    stopped = f"{self.name}: stopped after step {self.finished} of {self.steps}"
                    print(f"{stopped}; run the same command to continue", flush=True)
                    raise KeyboardInterrupt
        finally:
            signal.signal(signal.SIGINT, before)

    def _report(self, losses: dict[str, float], seconds: float) -> None:
        """seconds: of a step."""
        shown = ", ".join(f"{name} {loss:.4f}" for name, loss in losses.items())
        left = f"{seconds * (self.steps - self.finished) / 3600:.2f} hours left"
        print(
            f"{self.name} {self.finished}/{self.steps}: {shown}, {seconds:.3f} s a step, {memory()}, {left}",
            flush=True,
        )

    def _save(self) -> None:
        self._checkpoint.parent.mkdir(parents=True, exist_ok=True)
        state = {"step": self.finished, **{name: part.state_dict() for name, part in self._parts.items()}}
        write_whole(self._checkpoint, partial(torch.save, state))


def memory() -> str:
    """The peak memory so far, in words: of the GPU if one is used."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB of the GPU"
    peak = peak_mib()
    return "memory unknown" if peak is None else f"{peak / 1024:.1f} GiB"
