"""Writes a copy of a bundle with some parts in another precision.

The copy is written to a hidden sibling folder and renamed when complete, so an incomplete bundle is never visible.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
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
from animegamer_export.support.disk import disk_full_error
from animegamer_export.support.plans import clear_fidelity
from animegamer_rt.backends.registry import open_engines
from animegamer_rt.bundle.claims import claim_folder
from animegamer_rt.bundle.config import suggest
from animegamer_rt.bundle.files import lock_folder, make_folder, read_bounded, require_space, write_error, write_file
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
MARK, MARKED = "quantize.unfinished", b"animegamer-rt quantize writes a bundle here\n"
"""The file that marks the folder of a killed run, and its content."""
MOVE_IT = "move it, or choose another --out"
NO_SPACE_HINT = "choose another --out, or free some space"

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

    Removes the leftovers of a killed run. Before writing anything, raises BundleError, ConfigError, and OutputError if
    the disk is too small. Also raises OutputError if the disk fills up, or if another process writes to `out`.
    """
    out = Path(os.path.abspath(out))
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BundleError("the output folder is not empty", where=out, do="choose a new one")
    rules = {name: fp16_exclusions(name) for name in precisions}
    names = {name: part_names(bundle, name) for name in precisions}
    copied = _unchanged_files(bundle, {part for parts in names.values() for part in parts})
    sizes = {
        name: expected_bytes([bundle.part_path(part) for part in names[name]], scheme, rules[name])
        for name, scheme in precisions.items()
    }
    require_space(out, sum(sizes.values()) + sum(bundle.manifest.files[name].bytes for name in copied), NO_SPACE_HINT)
    work = out.with_name(f".{out.name}.quantize")
    make_folder(work)
    ours = {*bundle.manifest.files, MANIFEST, *(f"{name}.weights" for name in precisions)}
    with lock_folder(work), _clean_folder(work, ours), disk_full_error(out, "it starts again"):
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
                reports[name] = rewrite_files(sources, work, weights, scheme, rules[name], found, (), advance)
            if not reports[name].errors:
                raise BundleError(
                    f"{name} has no weight to quantise with {scheme.name}", where=bundle.folder, do=f"drop {name}"
                )
        with step("files hashed", 0):
            _write_manifest(bundle, work, precisions, names)
        _move_into_place(work, out)
    return reports


@contextmanager
def _clean_folder(work: Path, ours: Collection[str]) -> Iterator[None]:
    """Empties the folder of a killed run, and removes it at the end in any case.

    Raises OutputError for a folder with foreign files and without this command's mark.
    """
    mark = work / MARK

    def listed(folder: Path) -> list[str] | None:
        left = {path.name.removeprefix(".").removesuffix(".part") for path in folder.iterdir()}
        return [] if _is_mark(mark) or (left and left <= {*ours, MARK}) else None

    claim_folder(work, "a copy under way", listed, do=MOVE_IT)
    try:
        write_file(mark, MARKED)
        for path in work.iterdir():
            if path != mark:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        yield
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _is_mark(mark: Path) -> bool:
    with suppress(OSError):
        return read_bounded(mark, len(MARKED)) == MARKED
    return False


def _write_manifest(
    bundle: Bundle, folder: Path, precisions: Mapping[str, Scheme], names: Mapping[str, list[str]]
) -> None:
    manifest, parts = bundle.manifest, dict(bundle.manifest.parts)
    for name, scheme in precisions.items():
        for part in names[name]:
            parts[part] = replace(parts[part], precision=scheme.name, data_files=(f"{name}.weights",), int8_file="")
    schemes = {name: scheme.name for name, scheme in precisions.items()}
    provenance = {**manifest.provenance, "quantized": schemes, "quantized_from": bundle.fingerprint}
    if "export" in provenance:
        # A later export must not mistake a quantised part for its own.
        steps = provenance["export"]["steps"].items()
        others = {name: record for name, record in steps if name.split()[0] not in precisions}
        provenance["export"] = {**provenance["export"], "steps": others}
    # Measured with other weights.
    plans = clear_fidelity(manifest.plans)
    write_manifest(folder, replace(manifest, parts=parts, plans=plans, quality={}, provenance=provenance, engines={}))


def _move_into_place(work: Path, out: Path) -> None:
    """Renames the complete bundle to `out`."""
    try:
        (work / MARK).unlink()
        if out.exists():
            out.rmdir()  # Empty; not every system can replace a folder.
        os.replace(work, out)
    except OSError as error:
        raise write_error(out, error) from error


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
