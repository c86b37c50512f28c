"""Checks outputs before timing: against recorded outputs, onnxruntime, and graphs against eager runs.

Each check is an entry with its error and the allowed error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from animegamer_rt.backends.interface import Engines, StateSlots
from animegamer_rt.backends.torch import loader as backend
from animegamer_rt.backends.torch.fused_transformer import FusedTransformer
from animegamer_rt.backends.torch.kernels import Kernels
from animegamer_rt.backends.torch.rowwise_linear import convert_to_rowwise
from animegamer_rt.backends.torch.transformer import Transformer
from animegamer_rt.backends.torch.vae_decoder import decode
from animegamer_rt.bundle.denoise_plan import DenoisePlan
from animegamer_rt.bundle.loader import Bundle, open_bundle
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import BackendError
from animegamer_rt.noise import Noise
from animegamer_rt.stages.predictor import prefill_prompt
from animegamer_rt.stages.prompt import HistoryTurn, PromptBuilder
from animegamer_rt.state.game import GameState
from benchmarks.gpu import rates as gpu_rates

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"
ALLOWED = {"fp32": 1e-3, "bf16": 3e-2, "fp16": 4e-3, "fp8": 1.8e-1, "int8": 6e-2}
"""Relative errors by precision: about twice the largest that these checks show with pocket on a CPU; three times in
fp32, where pixels round the other way. A bug gives far larger errors."""
EXACT = 0.0
CHOICES = "predictor.choices"
SEED, SYNCED_STEPS = 11, 4
DRY_STEPS = 2
"""Steps of a plan on a CPU."""
GRAPH_ROUNDS = 3
"""Runs of each part: eager, capturing graphs, replaying them."""

Array = npt.NDArray[Any]
Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class BackendVariant:
    """One configuration of PyTorch's engines. kernels: their library, None for plain operators."""

    device: str
    precision: str = "bf16"
    kernels: Path | None = None
    attention: str = "torch"

    def open(self, bundle: Bundle, graphs: bool = True) -> Engines:
        """The engines of a bundle. Raises BackendError if they run in another precision."""
        kernels = self.kernels or False
        device = "torch-cpu" if self.device == "cpu" else "torch"
        config = EngineConfig(device, self.precision, self.attention)
        engines = backend.load(bundle, config, graphs=graphs, kernels=kernels)
        if engines.precision["denoiser"] != self.precision:
            raise BackendError(f"the denoiser does not run in {self.precision}", found=engines.device)
        return engines


Group = Callable[[BackendVariant], Iterator[Entry]]


def entries(job_args: Mapping[str, Any]) -> Iterator[Entry]:
    """All checks of one variant. An exception in a check becomes an entry, and the others continue."""
    device, library = job_args["device"], Path(job_args["library"]) if job_args["kernels"] else None
    bundle = open_bundle(job_args["bundle"])
    variant = BackendVariant(device, job_args["precision"], library, job_args["attention"])
    for what, group in groups(bundle, variant).items():
        try:
            yield from group(variant)
        except Exception as error:  # noqa: BLE001 any error fails this check only
            yield {**entry(what, variant, math.inf), "broken": gpu_rates.describe_error(error)}


def groups(bundle: Bundle, variant: BackendVariant) -> dict[str, Group]:
    """The checks of a variant; with another attention, only those that depend on it."""
    graphs: dict[str, Group] = {}
    # Plain operators only in bf16.
    if variant.device == "cuda" and (variant.kernels or variant.precision == "bf16"):
        graphs = {"graphs": partial(same_under_graphs, bundle), "no waiting": partial(no_waiting, bundle)}
    parts: dict[str, Group] = {"parts": partial(compare_parts, bundle)}
    if variant.attention != "torch":
        return parts | graphs
    recorded: dict[str, Group] = {"recorded step": recorded_step}
    if variant.kernels is None:  # No kernel supports the clip's groups of two channels.
        recorded["recorded clip"] = recorded_clip
    return recorded | parts | graphs


def recorded_step(variant: BackendVariant) -> Iterator[Entry]:
    """A CFG pair of the reference, as recorded in tests/golden."""
    # Imported here, so that the other checks run without export's libraries.
    from animegamer_export.parity import diffusion
    from animegamer_export.parity.fixtures import open_folder

    torch_device, folder = backend.open_device(variant.device, variant.precision, False), open_folder(GOLDEN)
    step = folder.sets["dit_step_a"]
    denoiser, encoder = diffusion.networks(folder, step)
    with torch_device.use():
        shots = torch.cat([encoder.unconditional()[None], step.tensor("aroutput")]).to(
            torch_device.device, torch_device.dtype
        )
        backend.cast_for_inference(denoiser.to(torch_device.device), torch_device.dtype)
        if variant.precision in backend.ROWWISE:
            convert_to_rowwise(denoiser, backend.ROWWISE[variant.precision])
        network = Transformer(denoiser, torch_device.dtype)
        if variant.kernels is not None:
            network = FusedTransformer(denoiser, torch_device.dtype, Kernels(str(variant.kernels)))
        timestep, scope, latent = (
            step.tensor(key)[:1].to(torch_device.device) for key in ("timesteps", "flow_idx", "x")
        )
        v = network.v(latent, shots, network.modulations(timestep, scope).to(network.table_dtype)).cpu()
    yield entry("recorded step", variant, relative_error(v.numpy(), step.tensor("output").numpy()))


def recorded_clip(variant: BackendVariant) -> Iterator[Entry]:
    """A clip of the reference's decoder, chunk by chunk, as recorded in tests/golden."""
    from animegamer_export.parity import decoding
    from animegamer_export.parity.fixtures import open_folder

    torch_device, folder = backend.open_device(variant.device, variant.precision, False), open_folder(GOLDEN)
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
    yield entry("recorded clip", variant, relative_error(found, clip.tensor("output").numpy()))


def keep(kept: list[torch.Tensor], cache: torch.Tensor) -> None:
    """Copies a cache."""
    kept.append(cache.clone())


def compare_parts(bundle: Bundle, variant: BackendVariant) -> Iterator[Entry]:
    """Every part's outputs against the reference's.

    A dry run omits most steps and the second vae chunk, which turns at tiny size cover.
    """
    dry = variant.device != "cuda"
    engines = variant.open(bundle)
    expected, source = reference_answers(bundle.folder, dry)
    if not dry:
        list(answers(bundle, engines))  # The second run uses the graphs.
    for name, values in answers(bundle, engines, dry):
        if name == CHOICES:  # Two strengths may be nearly equal, so that rounding decides.
            continue
        yield entry(f"{name} against {source}", variant, relative_error(values, expected[name]))


def answers(bundle: Bundle, engines: Engines, dry: bool = False) -> Iterator[tuple[str, Array]]:
    """(part.output, values) of every part, on inputs that depend only on the bundle's sizes. dry: a subset."""
    shot, start = inputs(bundle)
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
    if prefill.choose_next is not None:
        slots = StateSlots(prompt_builder.strength_ids, prompt_builder.between_slots)
        yield CHOICES, prefill.choose_next(slots, 0)
    latent = denoised(engines, DenoisePlan.from_dict(bundle.plan("balanced")), shot, start, dry)
    yield "denoiser.latent", latent
    first, caches = engines.vae.first(np.ascontiguousarray(latent[:, :3]), (2, 1, 0, 3), True)
    yield "vae.first", first
    if not dry:
        yield "vae.next", engines.vae.next(np.ascontiguousarray(latent[:, 3:]), caches, (2, 1, 0, 3), True)


def inputs(bundle: Bundle) -> tuple[Array, Array]:
    """A shot and the initial latent of a turn."""
    geometry, random = bundle.manifest.geometry, np.random.default_rng(SEED)
    shot = random.standard_normal((geometry.shot_tokens, geometry.shot_width), dtype=np.float32)
    return shot, random.standard_normal(geometry.latent_shape, np.float32)


def denoised(engines: Engines, plan: DenoisePlan, shot: Array, start: Array, dry: bool = False) -> Array:
    """The latent after all steps of a plan; dry: after the first ones."""
    random = np.random.default_rng(SEED)
    denoising = engines.denoiser.start(start, shot, 10.0)
    for step, coefficients in islice(zip(plan, plan.coefficients(), strict=True), DRY_STEPS if dry else None):
        noise = random.standard_normal(start.shape, dtype=np.float32)
        denoising.step(coefficients, float(step.timestep), step.rows, noise)
    return denoising.latent()


@cache
def reference_answers(folder: Path, dry: bool) -> tuple[Mapping[str, Array], str]:
    """Reference outputs: onnxruntime's on the CPU; else this backend's in float32."""
    bundle = open_bundle(folder)
    try:
        from animegamer_rt.backends.onnxruntime import loader as onnxruntime
    except ModuleNotFoundError:
        ours = backend.load(bundle, EngineConfig("torch-cpu", "fp32"))
        return dict(answers(bundle, ours, dry)), "torch on the CPU"
    return dict(answers(bundle, onnxruntime.load(bundle, EngineConfig("cpu-fp32")), dry)), "onnxruntime on the CPU"


def same_under_graphs(bundle: Bundle, variant: BackendVariant) -> Iterator[Entry]:
    """Eager runs and graphs must give the same bytes."""
    eager = dict(answers(bundle, variant.open(bundle, graphs=False)))
    engines = variant.open(bundle)
    for _ in range(GRAPH_ROUNDS):
        found = dict(answers(bundle, engines))
    worst = max(relative_error(values, eager[name]) for name, values in found.items())
    yield entry("graphs against running eagerly", variant, worst, EXACT)


def no_waiting(bundle: Bundle, variant: BackendVariant) -> Iterator[Entry]:
    """Runs denoise steps under torch's debug mode, which raises at a host synchronisation."""
    engines, geometry = variant.open(bundle), bundle.manifest.geometry
    plan = DenoisePlan.from_dict(bundle.plan("balanced"))
    start = Noise(SEED, 1, 0, np.ones(1, np.float32), geometry.latent_shape)
    shot = np.zeros((geometry.shot_tokens, geometry.shot_width), np.float32)
    for _ in range(2):
        denoised(engines, plan, shot, start.array())
    denoising, waited = engines.denoiser.start(start, shot, 10.0), ""
    torch.cuda.set_sync_debug_mode("error")
    try:
        for step, coefficients in list(zip(plan, plan.coefficients(), strict=True))[:SYNCED_STEPS]:
            denoising.step(coefficients, float(step.timestep), step.rows, start)
    except RuntimeError as error:
        waited = str(error)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    yield {**entry("no host synchronisation between steps", variant, float(bool(waited)), EXACT), "waited": waited}


def relative_error(found: Array, expected: Array) -> float:
    """Norm of the difference over the norm of the expected array; infinite if the shapes differ."""
    if found.shape != expected.shape:
        return math.inf
    exact = expected.astype(np.float64)
    return float(np.linalg.norm(found - exact) / max(float(np.linalg.norm(exact)), 1e-12))


def allowed_error(variant: BackendVariant) -> float:
    """The allowed relative error of a variant's precision."""
    return ALLOWED[variant.precision]


def entry(what: str, variant: BackendVariant, error: float, allowed: float | None = None) -> Entry:
    """The result of one check. allowed: by default the variant's. A non-finite error is stored as null, and fails."""
    allowed = allowed_error(variant) if allowed is None else allowed
    about = {
        "check": what,
        "precision": variant.precision,
        "kernels": variant.kernels is not None,
        "attention": variant.attention,
    }
    return {**about, "error": error if math.isfinite(error) else None, "allowed": allowed, "passed": error <= allowed}
