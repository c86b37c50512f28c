"""Takes samples in a thread of its own, while something else runs."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import TypeVar

Own = TypeVar("Own", bound="Sampler")


class Sampler(ABC):
    """Inside `with`: `sample` is called every `period_s` seconds, which it may change. No thread is left after it."""

    def __init__(self, period_s: float, name: str) -> None:
        self.period_s, self._name = period_s, name

    @abstractmethod
    def sample(self) -> None:
        """Take one sample."""

    def __enter__(self: Own) -> Own:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self.period_s):
            self.sample()
