"""The asyncio client with blocking methods, so that one test can run over both clients."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from animegamer_client import aio


class BlockingAio:
    """An `aio.Client`, `aio.Game` or `aio.Turn`: whatever its methods return is awaited in `loop`."""

    def __init__(self, inner: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._inner, self._loop = inner, loop

    def __repr__(self) -> str:
        return repr(self._inner)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value
        return lambda *arguments, **options: self._finish(value(*arguments, **options))

    def __enter__(self) -> BlockingAio:
        self._finish(self._inner.__aenter__())
        return self

    def __exit__(self, *error: Any) -> None:
        self._finish(self._inner.__aexit__(*error))

    def __iter__(self) -> BlockingAio:
        return self

    def __next__(self) -> Any:
        try:
            return self._finish(anext(self._inner))
        except StopAsyncIteration:
            raise StopIteration from None

    def _finish(self, result: Any) -> Any:
        if inspect.isawaitable(result):
            result = self._loop.run_until_complete(asyncio.wait_for(result, 30))
        return BlockingAio(result, self._loop) if isinstance(result, aio.Game | aio.Turn) else result
