"""Loads a bundle's TensorRT engines: TensorRT-RTX or TensorRT, cuda-python and numpy, without torch.

`engine_id` chooses the engines that fit, `memory_budget` decides which weights stay on the GPU, `engines` runs them,
and `runtime_cache` saves compiled kernels. All of them use the interface in `device`, which `cuda` implements.
**No GPU has run `cuda` yet**; the rest is tested on the CPU through another device of the same interface.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from animegamer_rt.backends.interface import DeviceMemory, Engines
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.roles import DEFAULT_PARTS, ENCODER, PlanParts
from animegamer_rt.engine_config import EngineConfig

from . import runtime_cache
from .device import Device
from .engine_id import choose
from .engines import Denoiser, Encoder, EngineSet, Predictor, Vae, scratch_index
from .memory_budget import Budget, PartMemory, plan


def load(
    bundle: Bundle,
    config: EngineConfig,
    parts: PlanParts = DEFAULT_PARTS,
    *,
    device: Device | None = None,
    tell: Callable[[str], None] = print,
) -> Engines:
    """Loads a bundle's engines for this machine's GPU; `tell` receives the memory budget before anything is placed.

    Device settings are ignored. Raises BackendError if a GPU, library, engine or memory is missing, and
    EngineStaleError for an engine that was built for another GPU, library version or bundle.
    """
    if device is None:
        from animegamer_rt.backends.tensorrt.cuda import CudaDevice

        device = CudaDevice.open()
    device.use()
    gpu = device.info()
    chosen = choose(bundle, parts, gpu.arch, gpu.library, gpu.version)
    with ExitStack() as on_failure:
        on_failure.callback(device.close)
        files = bundle.manifest.files
        sha256 = {graph: files[engine.file].sha256 for graph, engine in chosen.items()}
        loaded = {
            graph: device.load(bundle.path(engine.file), runtime_cache.load(sha256[graph]))
            for graph, engine in chosen.items()
        }
        opened = EngineSet(device, loaded, sha256, parts)
        # Free before they were loaded, because the budget counts what loading has allocated.
        budget = _plan(opened, gpu.free_bytes)
        tell(f"{gpu.name} ({gpu.arch}), {gpu.library} {gpu.version}\n{budget}")
        budget.check()
        opened.allocate(budget.scratches)
        held = DeviceMemory(budget.on_gpu_bytes, "computed by the engines' budget, without the driver's own memory")
        engines = Engines(
            Predictor(opened),
            Denoiser(opened),
            Vae(opened),
            Encoder(opened) if ENCODER in loaded else None,
            f"{gpu.library} {gpu.version} on {gpu.name}{_describe_streaming(budget)}",
            library=f"{gpu.library} {gpu.version}",
            machine=f"{gpu.name} {gpu.arch}",
            settings="engines " + ", ".join(f"{graph} {found[:12]}" for graph, found in sha256.items()),
            concurrent_prediction=budget.concurrent_prediction,
            memory=lambda: held,
        )
        on_failure.pop_all()
    return engines


def _describe_streaming(budget: Budget) -> str:
    return f", {budget.streamed_bytes / 2**30:.1f} GiB of weights streamed" if budget.streamed_bytes else ""


def _plan(parts: EngineSet, free: int) -> Budget:
    """The budget with a scratch for the predictor if all weights then fit, otherwise with one scratch."""
    concurrent = _fit(parts, free, (0, 0))
    return concurrent if concurrent.fits and not concurrent.streamed_bytes else _fit(parts, free, (0,))


def _fit(parts: EngineSet, free: int, scratches: tuple[int, ...]) -> Budget:
    """The budget for this many scratches; sets each engine's resident weights accordingly."""
    engines = parts.engines
    needs = {part: PartMemory(engine.weights_bytes, engine.streamable_bytes) for part, engine in engines.items()}
    while True:
        budget = plan(needs, parts.buffers.total_bytes, scratches, free, parts.parts)
        for part, engine in engines.items():
            engine.set_resident_weights(budget.resident[part])
        # Streamed weights pass through scratch, so it may grow when more is streamed.
        needed = list(scratches)
        for part, engine in engines.items():
            number = scratch_index(part, len(scratches))
            needed[number] = max(needed[number], engine.scratch_bytes())
        if tuple(needed) == scratches:
            return budget
        scratches = tuple(needed)
