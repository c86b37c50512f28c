"""Runs a bundle's built engines with TensorRT-RTX or TensorRT, cuda-python and numpy; no torch.

`identity` says which engines fit, `budget` what they need, `parts` in what order things run, `compiled` what is kept
for the next start. `device` is the interface to a GPU that all of them are written against and `cuda` its one real
implementation, which has not been run on a GPU yet: the rest is tested on the CPU through a device of the same kind.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from animegamer_rt.backends.interface import DeviceMemory, Engines, PartCache
from animegamer_rt.backends.tensorrt import runtime_cache
from animegamer_rt.backends.tensorrt.device import Device
from animegamer_rt.backends.tensorrt.engine_id import choose
from animegamer_rt.backends.tensorrt.engines import Denoiser, Encoder, EngineSet, Predictor, Vae, scratch_of
from animegamer_rt.backends.tensorrt.memory_budget import Budget, PartMemory, plan
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.engine_config import EngineConfig


def load(
    bundle: Bundle,
    config: EngineConfig,
    cache: PartCache | None = None,
    *,
    device: Device | None = None,
    tell: Callable[[str], None] = print,
) -> Engines:
    """Loads a bundle's engines for this machine's GPU; `tell` is given the memory budget before anything is placed.

    The configuration has nothing to choose here, and no part is taken from `cache`.

    Raises BackendError when there is no GPU, library, engine or memory, and EngineStaleError for an engine that was
    built for another GPU, library version or bundle.
    """
    if device is None:
        from animegamer_rt.backends.tensorrt.cuda import CudaDevice

        device = CudaDevice.open()
    device.use()
    facts = device.facts()
    chosen = choose(bundle, facts.arch, facts.library, facts.version)
    with ExitStack() as on_failure:
        on_failure.callback(device.close)
        files = bundle.manifest.files
        sha256 = {part: files[engine.file].sha256 for part, engine in chosen.items()}
        loaded = {
            part: device.load(bundle.path(engine.file), runtime_cache.recall(sha256[part]))
            for part, engine in chosen.items()
        }
        parts = EngineSet(device, loaded, sha256)
        # Free before they were loaded: what loading has placed already is among the needs.
        budget = _plan(parts, facts.free_bytes)
        tell(f"{facts.name} ({facts.arch}), {facts.library} {facts.version}\n{budget}")
        budget.check()
        parts.place(budget.scratches)
        held = DeviceMemory(budget.on_gpu_bytes, "the engines' own budget, beside it the driver's own")
        engines = Engines(
            Predictor(parts),
            Denoiser(parts),
            Vae(parts),
            Encoder(parts) if "encoder" in loaded else None,
            f"{facts.library} {facts.version} on {facts.name}{_streamed(budget)}",
            concurrent_prediction=budget.concurrent_prediction,
            memory=lambda: held,
        )
        on_failure.pop_all()
    return engines


def _streamed(budget: Budget) -> str:
    return f", {budget.streamed_bytes / 2**30:.1f} GiB of weights streamed" if budget.streamed_bytes else ""


def _plan(parts: EngineSet, free: int) -> Budget:
    """Fits the engines: with a scratch of the predictor's own if all weights stay on the GPU beside it."""
    apart = _fitted(parts, free, (0, 0))
    return apart if apart.fits and not apart.streamed_bytes else _fitted(parts, free, (0,))


def _fitted(parts: EngineSet, free: int, scratches: tuple[int, ...]) -> Budget:
    """Fits the engines over so many scratches, and tells each how much of its weights stays on the GPU."""
    engines = parts.engines
    needs = {part: PartMemory(engine.weights_bytes, engine.streamable_bytes) for part, engine in engines.items()}
    while True:
        budget = plan(needs, parts.buffers.total_bytes, scratches, free)
        for part, engine in engines.items():
            engine.keep_weights(budget.kept[part])
        # Streamed weights pass through scratch, so it may grow with what was streamed.
        needed = list(scratches)
        for part, engine in engines.items():
            number = scratch_of(part, len(scratches))
            needed[number] = max(needed[number], engine.scratch_bytes())
        if tuple(needed) == scratches:
            return budget
        scratches = tuple(needed)
