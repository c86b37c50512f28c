"""Sequential offload: only the part that is running stays in memory, for CPUs with little of it.

A part is opened on first use, and the previous one is freed before.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from animegamer_rt.backends.interface import Prefill


class InMemory:
    """The one part that is in memory."""

    def __init__(self) -> None:
        self._opened_by: object = None
        self._part: object = None
        self._lock = threading.Lock()

    def get(self, open_part: Callable[[], Any]) -> Any:
        """The part that this function opens, cached until another one is requested."""
        with self._lock:
            if self._opened_by is not open_part:
                self._opened_by = self._part = None
                gc.collect()
                self._part, self._opened_by = open_part(), open_part
            return self._part

    def engine(self, open_part: Callable[[], Any]) -> Any:
        """An engine of `interface` whose part is opened when it is called. A denoiser's run keeps it until dropped."""
        return _OpenedWhenCalled(self, open_part)


class _OpenedWhenCalled:
    def __init__(self, memory: InMemory, open_part: Callable[[], Any]) -> None:
        self._memory, self._open_part = memory, open_part

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            found = getattr(self._memory.get(self._open_part), name)(*arguments)
            # The function that chooses the next states would keep the part in memory.
            return replace(found, choose_next=None) if isinstance(found, Prefill) else found

        return call
