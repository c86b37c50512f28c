"""Runs a bundle's built engines with TensorRT-RTX or TensorRT, cuda-python and numpy; no torch.

`identity` says which engines fit, `budget` what they need, `parts` in what order things run, `compiled` what is kept
for the next start. `device` is the interface to a GPU that all of them are written against and `cuda` its one real
implementation, which has not been run on a GPU yet: the rest is tested on the CPU through a device of the same kind.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from ...bundle import Bundle
from ..contract import Engines
from . import compiled
from .budget import Budget, Need, plan
from .device import Device
from .identity import choose
from .parts import Denoiser, Encoder, EngineParts, Predictor, Vae


def open_engines(bundle: Bundle, device: Device | None = None, tell: Callable[[str], None] = print) -> Engines:
    """Loads a bundle's engines for this machine's GPU; `tell` is given the memory budget before anything is placed.

    Raises BackendError when there is no GPU, library, engine or memory, and EngineStaleError for an engine that was
    built for another GPU, library version or bundle.
    """
    if device is None:
        from .cuda import CudaDevice

        device = CudaDevice.open()
    device.use()
    facts = device.facts()
    chosen = choose(bundle, facts.arch, facts.library, facts.version)
    with ExitStack() as on_failure:
        on_failure.callback(device.close)
        files = bundle.manifest.files
        sha256 = {part: files[engine.file].sha256 for part, engine in chosen.items()}
        loaded = {
            part: device.load(bundle.path(engine.file), compiled.recall(sha256[part]))
            for part, engine in chosen.items()
        }
        parts = EngineParts(device, loaded, sha256)
        budget = _plan(parts)
        tell(f"{facts.name} ({facts.arch}), {facts.library} {facts.version}\n{budget}")
        parts.buffers.allocate(device)
        # One at a time runs, in the stream's order, so one scratch serves all.
        scratch = device.allocate(max(budget.scratch_bytes, 1))
        contexts = {part: parts.context(part, 0, scratch, budget.scratch_bytes) for part in loaded}
        # The other profile of the same engine: a step of one row.
        single = parts.context("denoiser", 1, scratch, budget.scratch_bytes)
        on_failure.pop_all()
    streamed = f", {budget.streamed_bytes / 2**30:.1f} GiB of weights streamed" if budget.streamed_bytes else ""
    return Engines(
        Predictor(parts, contexts["predictor"]),
        Denoiser(parts, contexts["denoiser"], single),
        Vae(parts, contexts["vae_first"], contexts["vae_next"]),
        Encoder(parts, contexts["encoder"]) if "encoder" in contexts else None,
        f"{facts.library} {facts.version} on {facts.name}{streamed}",
    )


def _plan(parts: EngineParts) -> Budget:
    """Fits the engines, and tells each how much of its weights stays on the GPU."""
    engines, free = parts.engines, parts.device.facts().free_bytes
    needs = {part: Need(engine.weights_bytes, engine.streamable_bytes) for part, engine in engines.items()}
    scratch = 0
    while True:
        budget = plan(needs, parts.buffers.total_bytes, scratch, free)
        for part, engine in engines.items():
            engine.keep_weights(budget.kept[part])
        # Streamed weights pass through scratch, so it may grow with what was streamed.
        needed = max(engine.scratch_bytes() for engine in engines.values())
        if needed <= scratch:
            return budget
        scratch = needed
