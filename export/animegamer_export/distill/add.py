"""Adds the plan `turbo` to a bundle: a student of its denoiser, and a light decoder in place of its vae."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from animegamer_export.evaluate.fidelity import denoise_turn, predict_first_turns
from animegamer_export.evaluate.judges import judge_of
from animegamer_export.evaluate.metrics import Clip
from animegamer_export.evaluate.turns import plan_engines, sample_instructions
from animegamer_export.onnx_io.write import ExportResult, Precision
from animegamer_export.parts.denoiser import AttentionForm, export_denoiser
from animegamer_export.parts.light_decoder import export_light_decoder
from animegamer_export.parts.tiny_decoder import export_tiny_decoder
from animegamer_export.parts.vae import pixels
from animegamer_export.plan_search.measure import SearchBudget, measure_own_plans
from animegamer_export.plan_search.results import GOALS
from animegamer_export.support.new_bundle import write_errors
from animegamer_rt.backends.torch.device import TorchDevice
from animegamer_rt.backends.torch.networks import read_network
from animegamer_rt.bundle.denoise_plan import DenoisePlan
from animegamer_rt.bundle.files import lock_folder, remove
from animegamer_rt.bundle.loader import Bundle, read
from animegamer_rt.bundle.manifest import EXACT, Manifest, PlanEntry
from animegamer_rt.bundle.roles import DEFAULT_PARTS, DENOISER, LIGHT_DECODER, TINY_DECODER, VAE, graph_names
from animegamer_rt.bundle.writer import with_files, write_manifest
from animegamer_rt.engine_config import DEFAULT_CONFIG, EngineConfig
from animegamer_rt.errors import BundleError
from animegamer_rt.models.denoiser import Denoiser
from animegamer_rt.models.light_decoder import LightDecoder
from animegamer_rt.models.tiny_decoder import TinyDecoder
from animegamer_rt.pipeline import Pipeline

from .files import TEACHER, read_light_decoder, read_student, teacher_hash
from .likeness import likeness

TURBO = "turbo"
OWN: Mapping[str, str] = {DENOISER: "denoiser_turbo", VAE: "vae_light"}
"""Role -> the plan's part. With a number behind it while the bundle has an earlier one."""
CALIBRATION_TURNS, COMPARED_TURNS = 24, 10
LEAST_DB = 25.0
"""Of the light decoder against the vae. Latents of another scale give some 12."""
SCORE_LOST = 0.02
"""Of the judge's score of `exact`, at most."""
SEED = 3000


def add_turbo(
    bundle: Bundle,
    student: Path,
    light_decoder: Path,
    default: bool = False,
    config: EngineConfig = DEFAULT_CONFIG,
    log: Callable[[str], object] = print,
) -> tuple[Bundle, list[str]]:
    """Writes both parts and the plan `turbo` into the bundle, as its folder has it by now.

    default: it becomes the default plan, which it stays if the earlier `turbo` was. Returns the bundle, and the goals
    that the plan misses: it then has no figures, so it is not played, and leaves a measured earlier `turbo` in place.
    Nothing in the bundle changes until its manifest is replaced; other files than those it names are left over.
    Raises CheckpointError for a file that does not hold such a network, BundleError for a student of another
    denoiser, for a light decoder that draws other pictures than the vae, and where a part does not compute what its
    network does, and OutputError for a full disk, or if another process writes to the bundle.
    """
    with lock_folder(bundle.folder), write_errors(bundle.folder):
        earlier = read(bundle.folder)
        network, plan = read_student(student, earlier)
        light = read_light_decoder(light_decoder, earlier)
        try:
            _remove_left_over(earlier)
            return _add(earlier, network, plan, light, light_decoder, default, config, log)
        finally:
            _remove_left_over(read(bundle.folder))


def _add(
    earlier: Bundle,
    network: Denoiser,
    plan: DenoisePlan,
    light: LightDecoder | TinyDecoder,
    light_decoder: Path,
    default: bool,
    config: EngineConfig,
    log: Callable[[str], object],
) -> tuple[Bundle, list[str]]:
    unconditional = read_network(earlier, TorchDevice(torch.float32), DEFAULT_PARTS, DENOISER)[1].float()
    folder, plain, own = earlier.folder, without_turbo(earlier.manifest), _free_names(earlier.manifest)
    usual = plain.parts[DENOISER]
    precision: Precision = "fp32" if usual.precision == "fp32" else "fp16"
    form: AttentionForm = "onnxruntime" if usual.int8_file else "onnx"
    written = export_denoiser(network, unconditional, folder, precision, form, bool(usual.int8_file), own[DENOISER])
    entry = PlanEntry(plan.to_dict(), parts={DENOISER: own[DENOISER]})
    made = _with_parts(Bundle(folder, plain), written, entry, log)
    latents, frames = _sample_clips(made, config)
    _require_likeness(light, latents[-COMPARED_TURNS:], frames[-COMPARED_TURNS:], light_decoder)
    if isinstance(light, TinyDecoder):
        kind, written = TINY_DECODER, export_tiny_decoder(light, latents[0], folder, own[VAE], precision)
    else:
        kind, written = LIGHT_DECODER, export_light_decoder(light, latents, folder, own[VAE], precision)
    made = _with_parts(made, written, replace(entry, parts=own), log, {kind: asdict(light.size)})
    figures, missed = _measure(made, latents, frames, config, log)
    before = earlier.manifest.plans.get(TURBO, entry)
    if missed and before.fidelity:
        return earlier, missed
    plans, default = made.manifest.plans, not missed and (default or before.default)
    entries = {name: replace(one, default=one.default and not default) for name, one in plans.items()}
    entries[TURBO] = replace(plans[TURBO], fidelity={} if missed else figures, default=default)
    provenance = {**made.manifest.provenance, TURBO: {TEACHER: teacher_hash(earlier)}}
    return write_manifest(folder, replace(made.manifest, plans=entries, provenance=provenance), changed=()), missed


def _free_names(manifest: Manifest) -> dict[str, str]:
    """Role -> a name for turbo's part whose graphs the bundle does not have."""
    ends = ("", *(f"_{number}" for number in range(2, len(manifest.parts) + 3)))
    for end in ends:
        names = {role: part + end for role, part in OWN.items()}
        if manifest.parts.keys().isdisjoint(graph for item in names.items() for graph in graph_names(*item)):
            break
    return names


def _remove_left_over(bundle: Bundle) -> None:
    """Removes the files of turbo's parts that the manifest does not name: of an earlier one, or of a killed run."""
    for path in [path for part in OWN.values() for path in bundle.folder.rglob(f"{part}*")]:
        ours = path.suffix in (".onnx", ".weights") and path.is_file()  # not the trained files, which may lie here, too
        if ours and path.relative_to(bundle.folder).as_posix() not in bundle.manifest.files:
            remove(path)


def without_turbo(manifest: Manifest) -> Manifest:
    """The manifest without the plan `turbo` and parts of its own; `exact` becomes the default where `turbo` was."""
    plans = {name: entry for name, entry in manifest.plans.items() if name != TURBO}
    if not any(entry.default for entry in plans.values()):
        plans[EXACT] = replace(plans[EXACT], default=True)
    used = {item for entry in plans.values() for item in entry.parts.items()}
    own = {} if TURBO not in manifest.plans else manifest.plans[TURBO].parts.items() - used
    graphs = {graph for item in own for graph in graph_names(*item)}
    parts = {graph: part for graph, part in manifest.parts.items() if graph not in graphs}
    kinds = {LIGHT_DECODER, TINY_DECODER} - {part.network for part in parts.values()}
    sizes = {name: size for name, size in manifest.sizes.items() if name not in kinds}
    engines = {name: one for name, one in manifest.engines.items() if name.split("-")[0] not in graphs}
    provenance = {name: record for name, record in manifest.provenance.items() if name != TURBO}
    return replace(manifest, plans=plans, parts=parts, sizes=sizes, engines=engines, provenance=provenance)


def _with_parts(
    bundle: Bundle,
    written: ExportResult,
    turbo: PlanEntry,
    log: Callable[[str], object],
    sizes: Mapping[str, object] = MappingProxyType({}),
) -> Bundle:
    """The bundle with these parts and the plan that they play, which has no figures yet. Nothing is written."""
    log(written.report())
    manifest = bundle.manifest
    manifest = replace(
        manifest,
        parts={**manifest.parts, **written.parts},
        plans={**manifest.plans, TURBO: turbo},
        sizes={**manifest.sizes, **sizes},
    )
    changed = {file for part in written.parts.values() for file in part.files}
    return Bundle(bundle.folder, with_files(bundle.folder, manifest, changed))


def _sample_clips(bundle: Bundle, config: EngineConfig) -> tuple[list[Tensor], list[Clip]]:
    """Latents [1, 5, 16, h, w] of the student, and the frames u8 [17, H, W, 3] of them by the bundle's vae."""
    pipeline = Pipeline.open(bundle, plan_engines(bundle, config)(TURBO), TURBO, unmeasured=True)
    texts = sample_instructions(bundle.manifest.world, CALIBRATION_TURNS, SEED)
    latents = [denoise_turn(pipeline.denoiser, turn) for turn in predict_first_turns(pipeline, texts, SEED)]
    frames = [np.stack(list(pipeline.vae.decode(latent))) for latent in latents]
    return [torch.from_numpy(latent) for latent in latents], frames


@torch.no_grad()
def _require_likeness(
    light: LightDecoder | TinyDecoder, latents: Sequence[Tensor], frames: Sequence[Clip], where: Path
) -> None:
    rgb, upright = torch.arange(3), torch.tensor([False])
    drawn = [pixels(_frames(light, latent[0]), rgb, upright).numpy() for latent in latents]
    found = likeness(drawn, frames)["psnr_db"]
    if not found >= LEAST_DB:
        raise BundleError(
            "the light decoder draws other pictures than the bundle's vae",
            where=where,
            found=f"{found:.1f} dB on {len(latents)} latents",
            expected=f"at least {LEAST_DB:.0f} dB",
            do="use one for this bundle's latents (another model or scale gives other pictures), or train one on more "
            "--pairs for more --decoder-steps in another --work folder",
        )


def _frames(light: LightDecoder | TinyDecoder, latent: Tensor) -> Tensor:
    """The frames of a clip [17, 3, H, W], decoded at once."""
    if isinstance(light, TinyDecoder):
        frames: Tensor = light(latent / light.size.scale)[0]
        return frames
    return cast(Tensor, light(latent, None))


def _measure(
    bundle: Bundle,
    latents: Sequence[Tensor],
    frames: Sequence[Clip],
    config: EngineConfig,
    log: Callable[[str], object],
) -> tuple[dict[str, Any], list[str]]:
    """The plan's figures against `exact`, and which goals it misses. frames: by the vae, of the latents."""
    engines, budget = plan_engines(bundle, config), SearchBudget()
    light = Pipeline.open(bundle, engines(TURBO), TURBO, unmeasured=True).vae
    drawn = [np.stack(list(light.decode(latent.numpy()))) for latent in latents]
    decoder = {name: round(value, 3) for name, value in likeness(drawn, frames).items()}
    log(f"the light decoder against the vae, {len(drawn)} latents: {decoder}")
    texts = sample_instructions(bundle.manifest.world, 2 * budget.turns, SEED)
    figures = measure_own_plans(bundle, engines, texts, budget, log, judge_of(bundle))[TURBO]
    score, exact = figures["instruction_score"], figures["instruction_score_exact"]
    goals = {
        "edges of the light decoder, at least 0.95": decoder["edges"] >= 0.95,
        "motion of the light decoder, 0.9 to 1.1": 0.9 <= decoder["motion"] <= 1.1,
        f"SSIM against exact, at least {GOALS['fast']}": figures["ssim"] >= GOALS["fast"],
        "motion against exact, 0.9 to 1.1": 0.9 <= figures["motion_ratio"] <= 1.1,
        "the judge's score of exact, less 0.02": score is None or score >= exact - SCORE_LOST,
    }
    return {**figures, "light_decoder": decoder}, [name for name, reached in goals.items() if not reached]
