"""An export that is watched, and broken off where a test says."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from animegamer_export.support.progress import Progress

FP16 = dict.fromkeys(("predictor", "denoiser", "vae", "encoder"), "fp16")


class BreaksOff(Exception):
    """The moment an export is broken off at in these tests."""


class Watching(Progress):
    """Notes the steps begun; breaks off at the n-th weight of a step, or after a step's files are written."""

    def __init__(self, step: str = "", at_weight: int = -1) -> None:
        super().__init__(Console(file=io.StringIO()))
        self.steps: list[str] = []
        self.told: dict[str, list[int]] = {}
        self.sizes: dict[str, int] = {}
        self.breaks, self.left = step, at_weight

    @contextmanager
    def step(self, name: str, size: int) -> Iterator[Callable[[int], None]]:
        self.steps.append(name)
        self.sizes[name], told = size, self.told.setdefault(name, [])

        def advance(count: int) -> None:
            told.append(count)
            if name == self.breaks:
                self.left -= 1
                if self.left == 0:
                    raise BreaksOff

        yield advance
        if name == self.breaks and self.left < 0:
            raise BreaksOff
