"""Chooses the engines of a bundle that fit this GPU, TensorRT version and weights; refuses stale ones.

Reads the manifest's records only. `animegamer-rt build-engines` writes them by the same rules.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import Engine
from animegamer_rt.bundle.roles import ENCODER, PLAY_ROLES, PlanParts
from animegamer_rt.errors import AnimeGamerError, BackendError, EngineStaleError
from animegamer_rt.profiling.libraries import RTX_PLUGIN

RTX, DATA_CENTRE = "tensorrt_rtx", "tensorrt"
"""The two libraries by module name: TensorRT-RTX for consumer GPUs, TensorRT for all others."""
ANY_RTX = "rtx"
"""In place of an architecture: the typed graphs `PART-rtx.onnx` in the bundle's folder, for onnxruntime's plugin."""
GRAPH_VERSION = "1"
"""Of those graphs: the plugin compiles them itself, so they fit any RTX card and any version of the plugin."""
RTX_ARCHES = ("sm75", "sm80", "sm86", "sm89", "sm120", "sm121")
"""GPU architectures that TensorRT-RTX 1.7 supports; Hopper is not among them."""

ENGINE_ROLES = (*PLAY_ROLES, ENCODER)
"""Roles whose parts have engines. The text and image towers run once, to start a game, in onnxruntime."""


def engine_graphs(bundle: Bundle) -> list[str]:
    """The graphs of a bundle that have engines: those of all its plans' parts."""
    return [graph for graph, role in bundle.graph_roles.items() if role in ENGINE_ROLES]


def library_for(arch: str) -> str:
    """The library for a GPU architecture, or for ANY_RTX."""
    if arch == ANY_RTX:
        return RTX_PLUGIN
    return RTX if arch in RTX_ARCHES else DATA_CENTRE


def engine_name(graph: str, arch: str, library: str) -> str:
    """The name of an engine in the manifest; its file is engines/NAME.engine, or NAME.onnx of a typed graph."""
    return f"{graph}-{arch}" if library in (RTX, RTX_PLUGIN) else f"{graph}-{arch}-{library}"


def rebuild_command(bundle: Bundle, arch: str) -> str:
    """The command that builds the engines for this GPU, as an error's `do`."""
    return f"run: animegamer-rt build-engines --bundle {shlex.quote(str(bundle.folder))} --gpu {arch}"


def choose(bundle: Bundle, parts: PlanParts, arch: str, library: str, version: str) -> dict[str, Engine]:
    """The engines of a bundle's parts for this GPU and library, by graph; the encoder's only if it was built.

    Raises BackendError if one is missing, EngineStaleError if one was built for another GPU, version or weights.
    """
    chosen = {}
    for graph in (graph for role in ENGINE_ROLES for graph in parts.graphs(role)):
        found = engine_of(bundle, graph, arch, library, version)
        if isinstance(found, AnimeGamerError):
            raise found
        if found is not None:
            chosen[graph] = found
    return chosen


def engine_of(bundle: Bundle, graph: str, arch: str, library: str, version: str) -> Engine | AnimeGamerError | None:
    """The engine of one graph, or the error for it, not raised; None where an optional engine is missing."""
    engines: Mapping[str, Engine] = bundle.manifest.engines
    rebuild, name = rebuild_command(bundle, arch), engine_name(graph, arch, library)
    if name not in engines:
        if graph == ENCODER:
            return None
        others = ", ".join(other for other in engines if other.startswith(f"{graph}-")) or "none"
        return BackendError(f"no engine of {graph} for {arch}", where=bundle.folder, found=others, do=rebuild)
    engine = engines[name]
    where = bundle.path(engine.file)
    expected = {"library": library, "version": version, "arch": arch}
    for key, value in expected.items():
        found = engine.built_for.get(key, "nothing")
        if found != value:
            return EngineStaleError(
                f"the engine was built for another {key}", where=where, found=found, expected=value, do=rebuild
            )
    sources = bundle.part_sha256(graph)
    if engine.onnx_sha256 != sources:
        return EngineStaleError(
            "the engine was built from other weights",
            where=where,
            found=f"onnx {engine.onnx_sha256[:16]}..",
            expected=f"{sources[:16]}..",
            do=rebuild,
        )
    return engine
