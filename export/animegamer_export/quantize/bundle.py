"""Writes a copy of a bundle with some parts in another precision."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

from animegamer_export.evaluate.fidelity import denoise_turn, predict_first_turns
from animegamer_export.evaluate.turns import open_with_plan, sample_instructions
from animegamer_export.onnx_io.read import open_graph
from animegamer_export.quantize.graph import matrices
from animegamer_export.quantize.nodes import Ranges
from animegamer_export.quantize.recording import RecordingDenoiser
from animegamer_export.quantize.scheme import Scheme
from animegamer_export.quantize.weights import Exclude, RewriteReport, expected_bytes, read_weight, rewrite_files
from animegamer_export.support.new_bundle import new_bundle
from animegamer_export.support.plans import clear_fidelity
from animegamer_rt.backends.registry import open_engines
from animegamer_rt.bundle.config import suggest
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import EXACT
from animegamer_rt.bundle.manifest_file import MANIFEST
from animegamer_rt.bundle.roles import DENOISER, ROLES, graph_names
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import BundleError, ConfigError

from .exclusions import fp16_exclusions
from .ranges import record_activations
from .smoothing import activation_ranges

CALIBRATION_SEED = 1000
"""`verify` compares turns from seed 0, so calibration uses other ones."""

ProgressStep = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Shows a long step: takes its name and approximate size in bytes; yields a callback for the bytes of each write."""


@contextmanager
def no_progress(name: str, size: int) -> Iterator[Callable[[int], None]]:
    """A ProgressStep without output."""
    yield lambda _: None


def part_names(bundle: Bundle, name: str) -> list[str]:
    """The graphs of a part. Raises ConfigError if the bundle does not have it."""
    for role in ROLES:
        graphs = graph_names(role, name)
        if set(graphs) <= bundle.manifest.parts.keys():
            return list(graphs)
    words = {part for _, part in bundle.graph_parts.values()}
    raise ConfigError(f"the bundle has no part {name!r}", where=bundle.folder, do=suggest(name, words))


def quantize_bundle(
    bundle: Bundle,
    out: Path,
    precisions: Mapping[str, Scheme],
    calibration_turns: int = 4,
    step: ProgressStep = no_progress,
) -> dict[str, RewriteReport]:
    """Writes the bundle to `out`, which must be new or empty and appears once the bundle is complete.

    Raises ConfigError for a part that the bundle lacks, BundleError for one without weights to quantise, and what
    `new_bundle` raises.
    """
    rules = {name: fp16_exclusions(name) for name in precisions}
    names = {name: part_names(bundle, name) for name in precisions}
    copied = _unchanged_files(bundle, {part for parts in names.values() for part in parts})
    sizes = {
        name: expected_bytes([bundle.part_path(part) for part in names[name]], scheme, rules[name])
        for name, scheme in precisions.items()
    }
    size = sum(sizes.values()) + sum(bundle.manifest.files[name].bytes for name in copied)
    with new_bundle(out, size) as work:
        _copy(bundle, copied, work, step)
        reports = {}
        for name, scheme in precisions.items():
            found = None
            if scheme.calibrated:
                with step(f"{name} calibrated", 0):
                    found = calibrate_activations(bundle, name, scheme, rules[name], calibration_turns)
            sources = [bundle.part_path(part) for part in names[name]]
            with step(name, sizes[name]) as advance:
                weights = f"{name}.weights"
                reports[name] = rewrite_files(sources, work, weights, scheme, rules[name], found, advance)
            if not reports[name].errors:
                raise BundleError(
                    f"{name} has no weight to quantise with {scheme.name}", where=bundle.folder, do=f"drop {name}"
                )
        with step("files hashed", 0):
            _write_manifest(bundle, work, precisions, names)
    return reports


def _write_manifest(
    bundle: Bundle, folder: Path, precisions: Mapping[str, Scheme], names: Mapping[str, list[str]]
) -> None:
    manifest, parts = bundle.manifest, dict(bundle.manifest.parts)
    for name, scheme in precisions.items():
        for part in names[name]:
            parts[part] = replace(parts[part], precision=scheme.name, data_files=(f"{name}.weights",), int8_file="")
    schemes = {name: scheme.name for name, scheme in precisions.items()}
    provenance = {**manifest.provenance, "quantized": schemes, "quantized_from": bundle.fingerprint}
    # Measured with other weights.
    plans = clear_fidelity(manifest.plans)
    write_manifest(folder, replace(manifest, parts=parts, plans=plans, quality={}, provenance=provenance, engines={}))


def calibrate_activations(bundle: Bundle, name: str, scheme: Scheme, exclude: Exclude, turns: int) -> dict[str, Ranges]:
    """Ranges of the denoiser's activations in whole turns, by the plan `balanced` if available, as it is faster."""
    if name != DENOISER:
        raise ConfigError(
            f"{scheme.name} also quantises activations, which only the denoiser supports",
            found=repr(name),
            do=f"choose a weight-only precision for {name} (docs/QUANTIZATION.md)",
        )
    source = bundle.part_path(name)
    recorded = RecordingDenoiser(source)
    engines = open_engines(bundle, EngineConfig("cpu-fp32"), plan=EXACT)
    pipeline = open_with_plan(bundle, replace(engines, denoiser=recorded), bundle, None)
    texts = sample_instructions(bundle.manifest.world, turns, CALIBRATION_SEED)
    for turn in predict_first_turns(pipeline, texts, CALIBRATION_SEED):
        denoise_turn(pipeline.denoiser, turn)
    found = record_activations(source, (feeds for feeds, _ in recorded.steps), exclude)
    chosen = (matrix for matrix in matrices(open_graph(source)) if matrix.name in found)
    return {matrix.name: activation_ranges(read_weight(matrix), found[matrix.name], scheme) for matrix in chosen}


def _unchanged_files(bundle: Bundle, changed: set[str]) -> list[str]:
    """The files to copy: all but those of changed parts, the engines and the manifest."""
    manifest = bundle.manifest
    replaced: set[str] = set()
    for part in changed:
        replaced |= set(manifest.parts[part].files)
    shared = {file for name, part in manifest.parts.items() if name not in changed for file in part.data_files}
    engines = {engine.file for engine in manifest.engines.values()}
    left = (replaced - shared) | engines | {MANIFEST}
    return [name for name in manifest.files if name not in left]


def _copy(bundle: Bundle, names: list[str], folder: Path, step: ProgressStep) -> None:
    sizes = {name: bundle.manifest.files[name].bytes for name in names}
    with step("what stays", sum(sizes.values())) as advance:
        for name, size in sizes.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            # Not a hard link: onnx's own loaders reject a data file with several names.
            shutil.copyfile(bundle.path(name), folder / name)
            advance(size)
