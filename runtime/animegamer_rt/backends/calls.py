"""Wraps engines so that all calls go through one function: to time them, or to load a part only while it is used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from animegamer_rt.bundle.roles import DENOISER, PREDICTOR, VAE

from .interface import Engines

Method = Callable[..., Any]
Around = Callable[[str, str, Method, tuple[Any, ...]], Any]
"""(role, name of a call, the engine's method, its arguments) -> the method's result."""


class CalledEngine:
    """Any engine of `interface`, or a denoiser's run: each method is `call(its name, its arguments)`."""

    def __init__(self, call: Callable[[str, tuple[Any, ...]], Any]) -> None:
        self._call = call

    def __getattr__(self, name: str) -> Method:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *arguments: self._call(name, arguments)


def map_calls(engines: Engines, around: Around) -> Engines:
    """The same engines, with every call of the predictor, the denoiser, its runs and the vae made by `around`."""

    def called(role: str, engine: Any) -> Any:
        def call(name: str, arguments: tuple[Any, ...]) -> Any:
            found = around(role, name, getattr(engine, name), arguments)
            return called(role, found) if name == "start" else found

        return CalledEngine(call)

    roles = {PREDICTOR: engines.predictor, DENOISER: engines.denoiser, VAE: engines.vae}
    return replace(engines, **{role: called(role, engine) for role, engine in roles.items()})
