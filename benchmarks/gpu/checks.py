"""What must hold before a time means anything: recorded answers of the reference, onnxruntime's answers, equal graphs.

Used by gpu.py. Every check is a record of its error and of what is allowed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from animegamer_rt.backends.interface import Engines
from animegamer_rt.backends.torch import loader as backend
from animegamer_rt.backends.torch.attention import AttentionChoice
from animegamer_rt.backends.torch.custom_ops import Kernels
from animegamer_rt.backends.torch.fused_transformer import FusedTransformer
from animegamer_rt.backends.torch.rowwise_linear import convert_to_rowwise
from animegamer_rt.backends.torch.transformer import Transformer
from animegamer_rt.backends.torch.vae_decoder import decode
from animegamer_rt.bundle.denoise_plan import DenoisePlan
from animegamer_rt.bundle.loader import Bundle, open_bundle
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.stages.predictor import prefill_prompt
from animegamer_rt.stages.prompt import HistoryTurn, PromptBuilder
from animegamer_rt.state.game import GameState
from benchmarks.gpu import kernels as gpu_kernels
from benchmarks.gpu import rates as gpu_rates
from benchmarks.gpu import turns as gpu_turns

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"
ALLOWED = {"fp32": 1e-3, "bf16": 3e-2, "fp16": 4e-3, "fp8": 1.8e-1, "int8": 6e-2}
"""Relative errors by precision: about twice the largest that these checks show with pocket on a CPU (thrice in fp32,
where it is pixels rounded the other way); a mistake is far above."""
SCORES_ALLOWED = {**ALLOWED, "fp16": 1.4e-2}
"""The same where scores may be in INT8, whose rounding only float16 shows."""
EXACT = 0.0
SKIPPED = "denoiser.latent, blocks skipped,"
"""onnxruntime cannot skip any: the answer is this backend's own, on the CPU."""
SKIPPED_MORE = 1.5
"""Times what other answers are allowed: a step takes the roundings of what another kept, too, and with pocket on a CPU
errors are up to 1.7 times as large. Blocks that are not skipped show 0.32."""
SEED, SYNCED_STEPS = 11, 4
GRAPH_ROUNDS = 3
"""Of all answers: one runs eagerly, one captures the graphs, one replays them."""

Array = npt.NDArray[Any]
Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class BackendVariant:
    """One way to run the parts: `kernels` is their library, None for plain operators; attention is the denoiser's."""

    device: str
    precision: str = "bf16"
    kernels: Path | None = None
    attention: AttentionChoice = "torch"

    def open(self, bundle: Bundle, graphs: backend.Graphs = "step") -> Engines:
        """A bundle's parts."""
        kernels = self.kernels or False
        device = "torch-cpu" if self.device == "cpu" else "torch"
        config = EngineConfig(device, self.precision, self.attention)
        return backend.load(bundle, config, graphs=graphs, kernels=kernels)


Group = Callable[[BackendVariant], Iterator[Entry]]


def entries(asked: Mapping[str, Any]) -> Iterator[Entry]:
    """All checks of one precision and attention, with the kernels or without, or of one family of kernels by itself.

    What breaks one is its entry, and the others go on.
    """
    device, library = asked["device"], Path(asked["library"]) if asked["kernels"] else None
    if "family" in asked:
        assert library is not None
        yield from gpu_kernels.checks(library, asked["family"], device)
        return
    bundle, way = open_bundle(asked["bundle"]), BackendVariant(device, asked["precision"], library, asked["attention"])
    for what, group in groups(bundle, way).items():
        try:
            yield from group(way)
        except Exception as error:  # noqa: BLE001 whatever it is, it is that check's, and the others are still wanted
            yield {**entry(what, way, math.inf), "broken": gpu_rates.told(error)}


def groups(bundle: Bundle, way: BackendVariant) -> dict[str, Group]:
    """What is checked of a way: where only its attention is another, no more than what that can change."""
    graphs: dict[str, Group] = {}
    # Plain operators so in bf16 alone; "fastest" may take another way each time.
    if way.device == "cuda" and (way.kernels or way.precision == "bf16") and way.attention != "fastest":
        graphs = {"graphs": partial(same_under_graphs, bundle), "no waiting": partial(no_waiting, bundle)}
    parts: dict[str, Group] = {"parts": partial(against, bundle)}
    if way.attention == "fastest":
        return {"fastest attention": partial(opens, bundle), **parts}
    if way.attention != "torch":
        return parts | graphs
    recorded: dict[str, Group] = {"recorded step": recorded_step}
    if way.kernels is None:  # the clip's groups of two channels are no kernel's
        recorded["recorded clip"] = recorded_clip
    return recorded | parts | graphs


def recorded_step(way: BackendVariant) -> Iterator[Entry]:
    """A guided pair of the reference, as recorded in tests/golden."""
    # Export's libraries are imported here, so that where they are missing the other checks go on.
    from animegamer_export.parity import diffusion
    from animegamer_export.parity.fixtures import open_folder

    torch_device, folder = backend.open_device(way.device, way.precision, False), open_folder(GOLDEN)
    step = folder.sets["dit_step_a"]
    denoiser, encoder = diffusion.networks(folder, step)
    with torch_device.use():
        shots = torch.cat([encoder.unconditional()[None], step.tensor("aroutput")]).to(
            torch_device.device, torch_device.dtype
        )
        backend.cast_for_inference(denoiser.to(torch_device.device), torch_device.dtype)
        if way.precision in backend.ROWWISE:
            convert_to_rowwise(denoiser, backend.ROWWISE[way.precision])
        network = Transformer(denoiser, torch_device.dtype)
        if way.kernels is not None:
            network = FusedTransformer(denoiser, torch_device.dtype, Kernels(str(way.kernels)))
        timestep, scope, latent = (
            step.tensor(key)[:1].to(torch_device.device) for key in ("timesteps", "flow_idx", "x")
        )
        v = network.v(latent, shots, network.modulations(timestep, scope).to(network.table_dtype)).cpu()
    yield entry("recorded step", way, relative(v.numpy(), step.tensor("output").numpy()))


def recorded_clip(way: BackendVariant) -> Iterator[Entry]:
    """A clip of the reference's decoder, chunk by chunk, as recorded in tests/golden."""
    from animegamer_export.parity import decoding
    from animegamer_export.parity.fixtures import open_folder

    torch_device, folder = backend.open_device(way.device, way.precision, False), open_folder(GOLDEN)
    clip = folder.sets["vae_decode_a"]
    with torch_device.use():
        network = backend.cast_for_inference(decoding.decoder(folder, clip).to(torch_device.device), torch_device.dtype)
        latent = clip.tensor("latent")[0].permute(1, 2, 3, 0).to(torch_device.device, torch_device.dtype)
        frames: list[torch.Tensor] = []
        caches: list[torch.Tensor] | None = None
        for start, end in clip.entry("chunks", list):
            kept: list[torch.Tensor] = []
            frames.append(decode(network, latent[start:end].contiguous(), caches, partial(keep, kept)))
            caches = kept
        found = torch.cat(frames).float().permute(3, 0, 1, 2)[None].cpu().numpy()
    yield entry("recorded clip", way, relative(found, clip.tensor("output").numpy()))


def keep(kept: list[torch.Tensor], cache: torch.Tensor) -> None:
    """Takes a copy of a cache."""
    kept.append(cache.clone())


def against(bundle: Bundle, way: BackendVariant) -> Iterator[Entry]:
    """Every output of every part of the bundle."""
    expected, source = answers_elsewhere(bundle)
    engines = way.open(bundle)
    list(answers(bundle, engines))  # the second round is the one with graphs
    for name, values in answers(bundle, engines):
        by = "torch on the CPU" if name == SKIPPED else source
        allowed = SKIPPED_MORE * allowed_of(way) if name == SKIPPED else None
        yield entry(f"{name} against {by}", way, relative(values, expected[name]), allowed)


def answers(bundle: Bundle, engines: Engines) -> Iterator[tuple[str, Array]]:
    """(part.output, values) of every part, on inputs that depend on the bundle's sizes alone."""
    geometry, random = bundle.manifest.geometry, np.random.default_rng(SEED)
    shape = geometry.latent_shape
    shot = random.standard_normal((geometry.shot_tokens, geometry.shot_width), dtype=np.float32)
    prompt_builder, text = PromptBuilder.from_bundle(bundle), bundle.manifest.world.examples[0]
    prompt = prompt_builder.build(text, [HistoryTurn(text, GameState(1, 2, 3, 4), shot.astype(np.float16))])
    prefill = prefill_prompt(engines.predictor, prompt)
    yield "predictor.shot", prefill.shot
    yield "predictor.logits", prefill.logits
    cache = prefill.cache
    for number in range(3):
        tokens = np.array([prompt_builder.strength_ids[number], *prompt_builder.between_slots[number]], np.int64)
        logits, cache = engines.predictor.extend(tokens, cache)
        yield f"predictor.logits {number + 2}", logits
    start = random.standard_normal(shape, np.float32)
    latent = denoised(engines, DenoisePlan.from_dict(bundle.plan("balanced")), shot, start)
    yield "denoiser.latent", latent
    if engines.denoiser.skippable_blocks:
        yield SKIPPED, denoised(engines, gpu_turns.skipping_plan(bundle), shot, start)
    first, caches = engines.vae.first(np.ascontiguousarray(latent[:, :3]), (2, 1, 0, 3), True)
    yield "vae.first", first
    yield "vae.next", engines.vae.next(np.ascontiguousarray(latent[:, 3:]), caches, (2, 1, 0, 3), True)


def denoised(engines: Engines, plan: DenoisePlan, shot: Array, start: Array) -> Array:
    """The latent of a whole plan."""
    random = np.random.default_rng(SEED)
    denoising = engines.denoiser.start(start, shot, 10.0)
    for step, coefficients in zip(plan, plan.coefficients(), strict=True):
        noise = random.standard_normal(start.shape, dtype=np.float32)
        denoising.step(coefficients, float(step.timestep), step.rows, noise, step.blocks)
    return denoising.latent()


def answers_elsewhere(bundle: Bundle) -> tuple[dict[str, Array], str]:
    """What onnxruntime says on the CPU, or where it is not installed or can not, the same parts there in float32."""
    ours = dict(answers(bundle, backend.load(bundle, EngineConfig("torch-cpu", "fp32"))))
    try:
        from animegamer_rt.backends import onnxruntime
    except ModuleNotFoundError:
        return ours, "torch on the CPU"
    return ours | dict(answers(bundle, onnxruntime.load(bundle, EngineConfig("cpu-fp32")))), "onnxruntime on the CPU"


def same_under_graphs(bundle: Bundle, way: BackendVariant) -> Iterator[Entry]:
    """Running eagerly, graphs of steps and graphs of turns: the same bytes."""
    eager = dict(answers(bundle, way.open(bundle, "off")))
    modes: tuple[backend.Graphs, ...] = ("step", "turn")
    for mode in modes:
        engines = way.open(bundle, mode)
        for _ in range(GRAPH_ROUNDS):
            found = dict(answers(bundle, engines))
        worst = max(relative(values, eager[name]) for name, values in found.items())
        yield entry(f"graphs of a {mode} against running eagerly", way, worst, EXACT)


def opens(bundle: Bundle, way: BackendVariant) -> Iterator[Entry]:
    """The engines open; their words say which attention was taken and what was measured for it."""
    runs_on = way.open(bundle).device
    yield {**entry("an attention was taken", way, EXACT, EXACT), "runs_on": runs_on}


def no_waiting(bundle: Bundle, way: BackendVariant) -> Iterator[Entry]:
    """Steps of a turn under torch's own alarm for host synchronisation."""
    engines, geometry = way.open(bundle), bundle.manifest.geometry
    plan = DenoisePlan.from_dict(bundle.plan("balanced"))
    start = np.zeros(geometry.latent_shape, np.float32)
    shot = np.zeros((geometry.shot_tokens, geometry.shot_width), np.float32)
    for _ in range(2):
        denoised(engines, plan, shot, start)
    denoising, waited = engines.denoiser.start(start, shot, 10.0), ""
    torch.cuda.set_sync_debug_mode("error")
    try:
        for step, coefficients in list(zip(plan, plan.coefficients(), strict=True))[:SYNCED_STEPS]:
            denoising.step(coefficients, float(step.timestep), step.rows, start)
    except RuntimeError as error:
        waited = str(error)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    yield {**entry("no host synchronisation between steps", way, float(bool(waited)), EXACT), "waited": waited}


def relative(found: Array, expected: Array) -> float:
    """Norm of the difference over the norm of what is expected; infinite for other shapes."""
    if found.shape != expected.shape:
        return math.inf
    exact = expected.astype(np.float64)
    return float(np.linalg.norm(found - exact) / max(float(np.linalg.norm(exact)), 1e-12))


def allowed_of(way: BackendVariant) -> float:
    """What its precision and its scores are allowed."""
    return (ALLOWED if way.attention == "torch" else SCORES_ALLOWED)[way.precision]


def entry(what: str, way: BackendVariant, error: float, allowed: float | None = None) -> Entry:
    """One check, by default within what its precision is allowed; an error that is no number is null, and fails."""
    allowed = allowed_of(way) if allowed is None else allowed
    about = {"check": what, "precision": way.precision, "kernels": way.kernels is not None, "attention": way.attention}
    return {**about, "error": error if math.isfinite(error) else None, "allowed": allowed, "passed": error <= allowed}
