"""What a built engine was built for, and whether that is what is here: names, hashes, refusals.

Knows the manifest's records; it opens no engine. The builder (`animegamer-rt export tensorrt`) writes by the same
rules.
"""

from __future__ import annotations

from collections.abc import Mapping

from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import Engine
from animegamer_rt.errors import AnimeGamerError, BackendError, EngineStaleError

RTX, DATA_CENTRE = "tensorrt_rtx", "tensorrt"
"""The two flavours, by the name they are imported under: TensorRT-RTX for consumer GPUs, TensorRT for the others."""
RTX_ARCHES = ("sm75", "sm80", "sm86", "sm89", "sm120", "sm121")
"""GPU architectures that TensorRT-RTX 1.7 builds for; not Hopper."""

ENGINE_PARTS = ("predictor", "denoiser", "vae_first", "vae_next", "encoder")
"""Parts that have engines. The text and image towers stay outside TensorRT: they run once, to start a game."""
NEEDED_PARTS = ENGINE_PARTS[:4]


def library_for(arch: str) -> str:
    """The flavour that serves a GPU architecture."""
    return RTX if arch in RTX_ARCHES else DATA_CENTRE


def engine_name(part: str, arch: str, library: str) -> str:
    """An engine's name in the manifest; its file is engines/<name>.engine."""
    return f"{part}-{arch}" if library == RTX else f"{part}-{arch}-{library}"


def mending_command(bundle: Bundle, arch: str) -> str:
    """What builds the engines that this machine needs."""
    return f"run: animegamer-rt export tensorrt --bundle {bundle.folder} --gpu {arch}"


def choose(bundle: Bundle, arch: str, library: str, version: str) -> dict[str, Engine]:
    """The engines of a bundle for this GPU and library, by part; the encoder's only if it was built.

    Raises BackendError when one was never built and EngineStaleError when one is of other weights or another version.
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
    """The engine of one part, or what is wrong with it, to be raised; None for one that need not be there."""
    engines: Mapping[str, Engine] = bundle.manifest.engines
    mend, name = mending_command(bundle, arch), engine_name(part, arch, library)
    if name not in engines:
        if part not in NEEDED_PARTS:
            return None
        others = ", ".join(other for other in engines if other.startswith(f"{part}-")) or "none"
        return BackendError(f"no engine of {part} for {arch}", where=bundle.folder, found=others, do=mend)
    engine = engines[name]
    where = bundle.path(engine.file)
    expected = {"library": library, "version": version, "arch": arch}
    for key, value in expected.items():
        found = engine.built_for.get(key, "nothing")
        if found != value:
            return EngineStaleError(
                f"the engine was built for another {key}", where=where, found=found, expected=value, do=mend
            )
    sources = bundle.part_sha256(part)
    if engine.onnx_sha256 != sources:
        return EngineStaleError(
            "the engine was built from other weights",
            where=where,
            found=f"onnx {engine.onnx_sha256[:16]}..",
            expected=f"{sources[:16]}..",
            do=mend,
        )
    return engine
