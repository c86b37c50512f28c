"""Adds the plan `turbo` to a bundle: a student of its denoiser, and a light decoder in place of its vae.

    python -m animegamer_export.distill.add BUNDLE --student FILE --light-decoder FILE

Both files are safetensors with the state dicts of `models.denoiser.Denoiser` and `models.light_decoder.LightDecoder`;
the second may also be TAECVX's published file (`animegamer-rt fetch --light-decoder`), .safetensors or .pth. The
student's metadata names its `teacher`, by `teacher_hash` of the denoiser that it was made of, and its `timesteps`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar, cast

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from animegamer_export.checkpoints.tiny_decoder import is_tiny_decoder, read_tiny_decoder
from animegamer_export.evaluate.fidelity import TurnInput, denoise_turn, predict_first_turns
from animegamer_export.evaluate.judges import judge_of
from animegamer_export.evaluate.metrics import psnr
from animegamer_export.evaluate.turns import plan_engines, sample_instructions
from animegamer_export.onnx_io.write import ExportResult, Precision
from animegamer_export.parts.denoiser import AttentionForm, export_denoiser
from animegamer_export.parts.light_decoder import export_light_decoder
from animegamer_export.parts.tiny_decoder import export_tiny_decoder
from animegamer_export.parts.vae import pixels
from animegamer_export.plan_search.measure import SearchBudget, measure_own_plans
from animegamer_rt.backends.torch.device import TorchDevice
from animegamer_rt.backends.torch.networks import read_network, read_size
from animegamer_rt.bundle.config import read_record
from animegamer_rt.bundle.denoise_plan import Branch, DenoisePlan, build_plan
from animegamer_rt.bundle.loader import Bundle, load, open_bundle
from animegamer_rt.bundle.manifest import EXACT, Manifest, PlanEntry
from animegamer_rt.bundle.roles import DEFAULT_PARTS, DENOISER, LIGHT_DECODER, TINY_DECODER, VAE, graph_names
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import AnimeGamerError, BundleError, CheckpointError
from animegamer_rt.models.denoiser import Denoiser
from animegamer_rt.models.light_decoder import LightDecoder, LightDecoderSize
from animegamer_rt.models.tiny_decoder import TinyDecoder
from animegamer_rt.pipeline import Pipeline

TURBO = "turbo"
OWN: Mapping[str, str] = {DENOISER: "denoiser_turbo", VAE: "vae_light"}
TEACHER, TIMESTEPS, SIZE = "teacher", "timesteps", "size"
"""Metadata of the files: of a student, and of a light decoder (fields of LightDecoderSize as JSON)."""
FINE_STEPS = 50
"""Of the plan whose noise a student's steps sum up."""
CALIBRATION_TURNS, COMPARED_TURNS = 24, 10
LEAST_DB = 25.0
"""Of the light decoder against the vae. Latents of another scale give some 12."""
SEED = 3000
Network = TypeVar("Network", bound=nn.Module)


def teacher_hash(bundle: Bundle) -> str:
    """The sha256 of a bundle's denoiser: of its weights, whatever graphs run them."""
    files = bundle.manifest.parts[DENOISER].data_files
    return hashlib.sha256("".join(bundle.manifest.files[name].sha256 for name in files).encode()).hexdigest()


def add_turbo(bundle: Bundle, student: Path, light_decoder: Path, default: bool = False) -> Bundle:
    """Writes both parts and the plan `turbo`, with its figures, into the bundle; an earlier `turbo` is replaced.

    default: it becomes the default plan.
    Raises CheckpointError for a file that does not hold such a network, and BundleError for a student of another
    denoiser, for a light decoder that draws other pictures than the vae, and where a part does not compute what its
    network does; the bundle then has no plan `turbo`.
    """
    state, metadata = _read(student)
    _require_teacher(bundle, student, metadata)
    plan = _plan(student, metadata)
    read = read_network(bundle, TorchDevice(torch.float32), DEFAULT_PARTS, DENOISER)
    unconditional = read[1].float()
    network = _filled(Denoiser(read_size(bundle, DEFAULT_PARTS, DENOISER)), state, student)
    light = read_light_decoder(light_decoder, bundle)
    plain = _remove(bundle)
    with ExitStack() as undo:
        undo.callback(_remove, bundle)
        usual, own = plain.manifest.parts[DENOISER], OWN[DENOISER]
        precision: Precision = "fp32" if usual.precision == "fp32" else "fp16"
        form: AttentionForm = "onnxruntime" if usual.int8_file else "onnx"
        written = export_denoiser(network, unconditional, bundle.folder, precision, form, bool(usual.int8_file), own)
        bundle = _with_parts(plain, written, PlanEntry(plan.to_dict(), parts={DENOISER: own}))
        latents, frames = _sample_clips(bundle)
        _require_likeness(light, latents[-COMPARED_TURNS:], frames[-COMPARED_TURNS:], light_decoder)
        if isinstance(light, TinyDecoder):
            kind, written = TINY_DECODER, export_tiny_decoder(light, latents[0], bundle.folder, OWN[VAE], precision)
        else:
            kind, written = LIGHT_DECODER, export_light_decoder(light, latents, bundle.folder, OWN[VAE], precision)
        bundle = _with_parts(bundle, written, PlanEntry(plan.to_dict(), parts=OWN), {kind: asdict(light.size)})
        budget, judge = SearchBudget(), judge_of(bundle)
        texts = sample_instructions(bundle.manifest.world, 2 * budget.turns, SEED)
        figures = measure_own_plans(bundle, plan_engines(bundle, EngineConfig()), texts, budget, judge=judge)[TURBO]
        undo.pop_all()
    plans = bundle.manifest.plans
    entries = {name: replace(entry, default=entry.default and not default) for name, entry in plans.items()}
    entries[TURBO] = replace(plans[TURBO], fidelity=figures, default=default)
    provenance = {**bundle.manifest.provenance, TURBO: {TEACHER: metadata[TEACHER]}}
    return write_manifest(bundle.folder, replace(bundle.manifest, plans=entries, provenance=provenance), changed=())


def _remove(bundle: Bundle) -> Bundle:
    """The bundle without `turbo` and its files."""
    plain = write_manifest(bundle.folder, without_turbo(bundle.manifest), changed=())
    for part in OWN.values():
        for path in bundle.folder.glob(f"{part}*"):
            path.unlink()
    return plain


def without_turbo(manifest: Manifest) -> Manifest:
    """The manifest without the plan `turbo` and its parts; `exact` becomes the default where `turbo` was."""
    own = {graph for item in OWN.items() for graph in graph_names(*item)}
    plans = {name: entry for name, entry in manifest.plans.items() if name != TURBO}
    if not any(entry.default for entry in plans.values()):
        plans[EXACT] = replace(plans[EXACT], default=True)
    parts = {graph: part for graph, part in manifest.parts.items() if graph not in own}
    sizes = {name: size for name, size in manifest.sizes.items() if name not in (LIGHT_DECODER, TINY_DECODER)}
    provenance = {name: record for name, record in manifest.provenance.items() if name != TURBO}
    return replace(manifest, plans=plans, parts=parts, sizes=sizes, provenance=provenance)


def read_light_decoder(path: Path, bundle: Bundle) -> LightDecoder | TinyDecoder:
    """The light decoder in a file: one made of this bundle, or TAECVX. Raises CheckpointError."""
    if path.suffix == ".pth" or is_tiny_decoder(path):
        return read_tiny_decoder(path, read_size(bundle, DEFAULT_PARTS, VAE).scale)
    state, metadata = _read(path)
    size = read_record(LightDecoderSize, json.loads(metadata.get(SIZE, "{}")), f"{path}: {SIZE}")
    return _filled(LightDecoder(size), state, path)


def _require_teacher(bundle: Bundle, student: Path, metadata: Mapping[str, str]) -> None:
    found, expected = metadata.get(TEACHER, "no teacher"), teacher_hash(bundle)
    if found != expected:
        raise BundleError(
            "the student was made of another denoiser than the bundle's",
            where=student,
            found=found[:16],
            expected=f"{expected[:16]}, that of {bundle.folder}",
            do="make it of this bundle's denoiser",
        )


def _plan(student: Path, metadata: Mapping[str, str]) -> DenoisePlan:
    """The student's steps: unguided, with the noise of the exact plan's steps."""
    words = metadata.get(TIMESTEPS, "").split(",")
    if not all(word.isdecimal() for word in words):
        raise CheckpointError(f"its {TIMESTEPS} are not a list like 999,319,19", where=student, do="train it again")
    steps = [int(word) for word in words]
    branches: list[Branch] = ["conditional"] * len(steps)
    return build_plan(steps, guidance=[1.0] * len(steps), branches=branches, noise_steps=FINE_STEPS)


def _with_parts(
    bundle: Bundle, written: ExportResult, turbo: PlanEntry, sizes: Mapping[str, object] = MappingProxyType({})
) -> Bundle:
    """The bundle with these parts and the plan that they play, which has no figures yet."""
    print(written.report(), flush=True)
    manifest = bundle.manifest
    manifest = replace(
        manifest,
        parts={**manifest.parts, **written.parts},
        plans={**manifest.plans, TURBO: turbo},
        sizes={**manifest.sizes, **sizes},
    )
    changed = {file for part in written.parts.values() for file in part.files}
    return write_manifest(bundle.folder, manifest, changed=changed)


def _sample_clips(bundle: Bundle) -> tuple[list[Tensor], list[np.ndarray]]:
    """Latents [1, 5, 16, h, w] of the student, and the frames u8 [17, H, W, 3] of them by the bundle's vae."""
    pipeline = Pipeline.open(bundle, plan_engines(bundle, EngineConfig())(TURBO), TURBO, unmeasured=True)
    texts = sample_instructions(bundle.manifest.world, CALIBRATION_TURNS, SEED)
    turns: Sequence[TurnInput] = predict_first_turns(pipeline, texts, SEED)
    latents = [denoise_turn(pipeline.denoiser, turn) for turn in turns]
    frames = [np.stack(list(pipeline.vae.decode(latent))) for latent in latents]
    return [torch.from_numpy(latent) for latent in latents], frames


@torch.no_grad()
def _require_likeness(
    light: LightDecoder | TinyDecoder, latents: Sequence[Tensor], frames: Sequence[np.ndarray], where: Path
) -> None:
    rgb, upright = torch.arange(3), torch.tensor([False])
    decibels = [
        psnr(pixels(_frames(light, latent[0]), rgb, upright).numpy(), true)
        for latent, true in zip(latents, frames, strict=True)
    ]
    found = float(np.mean(decibels))
    print(f"the light decoder against the vae: {found:.2f} dB on {len(decibels)} latents", flush=True)
    if not found >= LEAST_DB:
        raise BundleError(
            "the light decoder draws other pictures than the bundle's vae",
            where=where,
            found=f"{found:.1f} dB on {len(decibels)} latents",
            expected=f"at least {LEAST_DB:.0f} dB",
            do="use one for this bundle's latents: of another model, or in another scale, they give other pictures",
        )


def _frames(light: LightDecoder | TinyDecoder, latent: Tensor) -> Tensor:
    """The frames of a clip [17, 3, H, W], decoded at once."""
    if isinstance(light, TinyDecoder):
        frames: Tensor = light(latent / light.size.scale)[0]
        return frames
    return cast(Tensor, light(latent, None))


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors in float32, and the metadata."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name).float() for name in file.keys()}, file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"not a safetensors file ({error})", where=path, do="give another file") from error


def _filled(network: Network, state: Mapping[str, Tensor], path: Path) -> Network:
    """The network with these weights; its buffers are computed and stay. Raises CheckpointError."""
    wanted = {name: tuple(one.shape) for name, one in network.named_parameters()}
    given = {name: tuple(one.shape) for name, one in state.items()}
    known = network.state_dict().keys()
    wrong = {name: (given[name], shape) for name, shape in wanted.items() if name in given and given[name] != shape}
    if given.keys() - known or wanted.keys() - given or wrong:
        raise CheckpointError(
            f"not the weights of a {type(network).__name__} of this size",
            where=path,
            missing=sorted(wanted.keys() - given),
            unexpected=sorted(given.keys() - known),
            misshapen=wrong,
        )
    network.load_state_dict({name: state[name] for name in wanted}, strict=False)
    return network.eval()


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code, 2 for a user error."""
    parser = argparse.ArgumentParser(
        prog="python -m animegamer_export.distill.add", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("bundle", help="name or folder; its plan turbo is replaced")
    for option in ("--student", "--light-decoder"):
        parser.add_argument(option, type=Path, required=True, metavar="FILE", help="safetensors")
    parser.add_argument("--default", action="store_true", help="make turbo the default plan")
    options = parser.parse_args(argv)
    try:
        bundle = add_turbo(open_bundle(options.bundle), options.student, options.light_decoder, options.default)
    except AnimeGamerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(load(bundle.folder).manifest.plans[TURBO].fidelity, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
