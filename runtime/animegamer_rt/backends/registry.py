"""Opens a bundle's engines: `open_engines` finds the backend for a configuration and has it load the bundle.

A backend's library is only imported when the backend is chosen.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from animegamer_rt.bundle.roles import PICTURE_READER
from animegamer_rt.engine_config import DEFAULT_CONFIG, TORCH_DEVICES, EngineConfig
from animegamer_rt.profiling import host_memory
from animegamer_rt.profiling.libraries import check_libraries

if TYPE_CHECKING:
    from animegamer_rt.bundle.loader import Bundle

    from .interface import EngineProvider, Engines, TowerEngines


def open_engines(bundle: Bundle, config: EngineConfig = DEFAULT_CONFIG, plan: str | None = None) -> Engines:
    """Loads the engines of a plan's parts (None: the default plan's), which can play every plan with the same parts.

    The readers run in onnxruntime on the CPU, whatever the configuration.
    Raises PlanError for an unknown plan, BackendError if the library, device or memory is missing, or a part cannot run
    there.
    """
    parts = bundle.parts_of(plan)
    check_libraries(config, reader=bundle.manifest.reader is not None)
    host_memory.check(bundle, config.device, config.precision, parts)
    engines = replace(_provider(config).load(bundle, config, parts), kind=config.kind, parts=parts)
    if bundle.manifest.reader is None:
        return engines
    from .onnxruntime.loader import load_picture_reader, load_reader

    pictures = load_picture_reader(bundle) if PICTURE_READER in bundle.manifest.parts else None
    return replace(engines, reader=load_reader(bundle), picture_reader=pictures)


def open_towers(bundle: Bundle, config: EngineConfig = DEFAULT_CONFIG) -> TowerEngines:
    """The text and image towers of a bundle that has them, on the configuration's device or else on the CPU.

    They run once per game, only in onnxruntime. Raises BundleError if the bundle has none, BackendError.
    """
    check_libraries(DEFAULT_CONFIG, reader=False)
    from .onnxruntime import loader as onnxruntime

    return onnxruntime.load_towers(bundle, config)


def _provider(config: EngineConfig) -> EngineProvider:
    if config.simulated:
        from . import simulated

        return simulated
    if config.device in TORCH_DEVICES:
        from .torch import loader as torch

        return torch
    if config.device == "tensorrt":
        from .tensorrt import loader as tensorrt

        return tensorrt
    from .onnxruntime import loader as onnxruntime

    return onnxruntime
