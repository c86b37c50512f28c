"""Chooses the engines of a bundle that fit this GPU, TensorRT version and weights; refuses stale ones.

It reads the manifest's records and opens no engine. `animegamer-rt build-engines` writes them by the same rules.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import Engine
from animegamer_rt.errors import AnimeGamerError, BackendError, EngineStaleError

RTX, DATA_CENTRE = "tensorrt_rtx", "tensorrt"
"""The two libraries by module name: TensorRT-RTX for consumer GPUs, TensorRT for all others."""
RTX_ARCHES = ("sm75", "sm80", "sm86", "sm89", "sm120", "sm121")
"""GPU architectures that TensorRT-RTX 1.7 supports; Hopper is not among them."""

ENGINE_PARTS = ("predictor", "denoiser", "vae_first", "vae_next", "encoder")
"""Parts that have engines. The text and image towers run once, to start a game, in onnxruntime."""
NEEDED_PARTS = ENGINE_PARTS[:4]


def library_for(arch: str) -> str:
    """The library for a GPU architecture."""
    return RTX if arch in RTX_ARCHES else DATA_CENTRE


def engine_name(part: str, arch: str, library: str) -> str:
    """The name of an engine in the manifest; its file is engines/NAME.engine."""
    return f"{part}-{arch}" if library == RTX else f"{part}-{arch}-{library}"


def rebuild_command(bundle: Bundle, arch: str) -> str:
    """The command that builds the engines for this GPU, as an error's `do`."""
    return f"run: animegamer-rt build-engines --bundle {shlex.quote(str(bundle.folder))} --gpu {arch}"


def choose(bundle: Bundle, arch: str, library: str, version: str) -> dict[str, Engine]:
    """The engines of a bundle for this GPU and library, by part; the encoder's only where it was built.

    Raises BackendError where one is missing, EngineStaleError where one was built for another GPU, version or weights.
    """
    chosen = {}
    for part in ENGINE_PARTS:
        found = engine_of(bundle, part, arch, library, version)
        if isinstance(found, AnimeGamerError):
            raise found
        if found is not None:
            chosen[part] = found
    return chosen


def engine_of(bundle: Bundle, part: str, arch: str, library: str, version: str) -> Engine | AnimeGamerError | None:
    """The engine of one part, or the error for it, not raised; None where an optional engine is missing."""
    engines: Mapping[str, Engine] = bundle.manifest.engines
    rebuild, name = rebuild_command(bundle, arch), engine_name(part, arch, library)
    if name not in engines:
        if part not in NEEDED_PARTS:
            return None
        others = ", ".join(other for other in engines if other.startswith(f"{part}-")) or "none"
        return BackendError(f"no engine of {part} for {arch}", where=bundle.folder, found=others, do=rebuild)
    engine = engines[name]
    where = bundle.path(engine.file)
    expected = {"library": library, "version": version, "arch": arch}
    for key, value in expected.items():
        found = engine.built_for.get(key, "nothing")
        if found != value:
            return EngineStaleError(
                f"the engine was built for another {key}", where=where, found=found, expected=value, do=rebuild
            )
    sources = bundle.part_sha256(part)
    if engine.onnx_sha256 != sources:
        return EngineStaleError(
            "the engine was built from other weights",
            where=where,
            found=f"onnx {engine.onnx_sha256[:16]}..",
            expected=f"{sources[:16]}..",
            do=rebuild,
        )
    return engine
