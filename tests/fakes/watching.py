"""An export that is watched."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from animegamer_export.support.progress import Progress

FP16 = dict.fromkeys(("predictor", "denoiser", "vae", "encoder"), "fp16")


class Watching(Progress):
    """Notes the steps begun, their sizes, and what was told of their writes."""

    def __init__(self) -> None:
        super().__init__(Console(file=io.StringIO()))
        self.steps: list[str] = []
        self.told: dict[str, list[int]] = {}
        self.sizes: dict[str, int] = {}

    @contextmanager
    def step(self, name: str, size: int) -> Iterator[Callable[[int], None]]:
        self.steps.append(name)
        self.sizes[name] = size
        yield self.told.setdefault(name, []).append
