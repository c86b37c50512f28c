"""The steps of an export; runs those that are not finished.

A step writes to its own folder. Its complete files are moved into the bundle and then recorded.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from animegamer_export.evaluate.turns import RELEASE_WORLD
from animegamer_export.parts.streamed.write import STORED, write_streamed
from animegamer_export.quantize.exclusions import fp16_exclusions, is_excluded
from animegamer_export.quantize.scheme import SCHEMES, Scheme, scheme
from animegamer_export.quantize.weights import rewrite_files
from animegamer_export.support.disk import disk_full_error
from animegamer_export.support.peak_memory import peak_mib
from animegamer_export.support.progress import Progress
from animegamer_export.towers import MOTION_MODEL, TEXT, Towers
from animegamer_rt.bundle.claims import Claim, claim_folder
from animegamer_rt.bundle.config import read_record, suggest_only, write_record
from animegamer_rt.bundle.files import lock_folder, make_folder, replace, require_space
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import Manifest, MotionTokenizer, Part
from animegamer_rt.bundle.manifest_file import MANIFEST, UNFINISHED
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.errors import ConfigError, OutputError

from . import default_plans
from .carry_over import carry_over
from .state_file import WORK_FOLDER, ExportState, own_files, step_key
from .weight_source import PLAY_PARTS, ExportSource

MOTION_STEP = "motion tokenizer"
TOKENIZER = ("tokenizer.model", "added_tokens.json")
MOVE_IT = "move it, or choose another --out"
NO_SPACE_HINT = "choose another --out, free some space, or export fewer --parts at a time"
BASE_PRECISION = "fp16"
"""Quantised parts are made from this precision, whose error is a thousandth of the most accurate scheme's."""

Advance = Callable[[int], None]
MakeFiles = Callable[[Path, Advance], Mapping[str, Any]]
"""Writes files to a folder and reports the bytes of each write; returns what the step's record adds."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step: its inputs, its folder in the bundle, roughly how many bytes it writes, and its function."""

    name: str
    key: str
    made_of: str
    bytes: int
    make: MakeFiles
    into: str = ""


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """The precision of each part to export, and the bundle's folder."""

    precision: Mapping[str, str]
    out: Path


def export(source: ExportSource, request: ExportRequest, progress: Progress) -> Bundle | None:
    """Runs the unfinished steps; returns the bundle, or None while required parts are missing.

    Before writing anything, raises OutputError if the
    disk is too small or another process exports to the folder, and ConfigError if a complete bundle would become
    incomplete. Also raises OutputError if the disk fills up.
    """
    claim = _claim(request.out)
    state = ExportState.open(request.out)
    with progress.busy("verifying finished steps"):
        steps = list(_pending_steps(source, request, state))
    lacking = _missing_parts(source, request, state)
    if lacking and state.whole:
        raise ConfigError(
            "would make the existing bundle incomplete",
            where=request.out,
            found=f"{', '.join(lacking)} made from other or changed checkpoints",
            do="add them to --parts, check --release and --picture, or choose another --out",
        )
    require_space(request.out, sum(step.bytes for step in steps), NO_SPACE_HINT)
    make_folder(request.out)
    with lock_folder(request.out):
        if claim is None:
            claim = _claim(request.out)  # Read again under the lock.
        assert claim is not None
        return _run_steps(steps, lacking, state, source, progress, claim)


def _claim(out: Path) -> Claim | None:
    """Locks the folder for writing; None if it does not exist. Raises OutputError for a folder with foreign files."""
    if not os.path.lexists(out):
        return None
    # A power cut can leave the very first record as .part.
    ignored = [f"{dot}{UNFINISHED}.part" for dot in (".", "")]
    claim = claim_folder(out, "an export", own_files, ignored=ignored, do="choose another folder with --out")
    if WORK_FOLDER not in claim.listed and os.path.lexists(out / WORK_FOLDER):
        raise OutputError("the folder holds files that are not an export's", where=out / WORK_FOLDER, do=MOVE_IT)
    for name in (MANIFEST, *TOKENIZER):
        claim.check(name)
    return claim


def _run_steps(
    steps: list[Step], lacking: list[str], state: ExportState, source: ExportSource, progress: Progress, claim: Claim
) -> Bundle | None:
    """Runs the steps in order, and writes the manifest if no part is missing."""
    for step in steps:
        # The record is invalid once the first file is replaced.
        state.forget(step.name)
    state.begin([*(step.name for step in steps if not step.into), *lacking, "manifest"])
    for step in steps:
        _run_step(step, state, progress, claim)
    shutil.rmtree(state.folder / WORK_FOLDER, ignore_errors=True)
    if lacking:
        return None
    manifest = carry_over(_manifest(source, state), state.folder)
    bundle = write_manifest(state.folder, manifest, changed=())
    state.close()
    return bundle


def _missing_parts(source: ExportSource, request: ExportRequest, state: ExportState) -> list[str]:
    """Parts needed to play that neither this export nor an earlier one of the same checkpoints makes."""
    there = _finished_parts(source, state)
    return [part for part in PLAY_PARTS if part not in request.precision and part not in there]


def _finished_parts(source: ExportSource, state: ExportState) -> set[str]:
    """The parts made from the source's files."""
    parts = [step for step, record in state.steps.items() if "parts" in record]
    made_of = {part: step_key(source.made_of[part]) for part in parts if part in source.made_of}
    return {part for part in parts if made_of.get(part) in (None, state.steps[part].get("made_of", ""))}


def _pending_steps(source: ExportSource, request: ExportRequest, state: ExportState) -> Iterator[Step]:
    """The unfinished steps."""
    for part, precision in request.precision.items():
        if not state.done(part, step_key(step_key(source.made_of[part]), part, precision)):
            yield from _part_steps(source, request, state, part)
    others = [("tokenizer", step_key(source.made_of["tokenizer"]), partial(_tokenizer, source))]
    if source.towers is not None and TEXT in request.precision:
        make = partial(_motion_tokenizer, source.towers)
        others.append((MOTION_STEP, step_key(source.made_of[TEXT]), make))
    yield from (Step(name, key, key, 0, make) for name, key, make in others if not state.done(name, key))


def _part_steps(source: ExportSource, request: ExportRequest, state: ExportState, part: str) -> Iterator[Step]:
    precision, made_of = request.precision[part], step_key(source.made_of[part])

    def step(name: str, precision: str, make: MakeFiles, into: str = "") -> Step:
        return Step(name, step_key(made_of, part, precision), made_of, _bytes(source, part, precision), make, into)

    if precision in STORED:
        yield step(part, precision, partial(_write, source, part, precision))
        return
    base, name = f"{WORK_FOLDER}/{part}-{BASE_PRECISION}", f"{part} in {BASE_PRECISION}"
    if not state.done(name, step_key(made_of, part, BASE_PRECISION)):
        yield step(name, BASE_PRECISION, partial(_write, source, part, BASE_PRECISION), base)
    chosen = part_scheme(part, precision)
    yield step(part, precision, partial(_quantise, part, chosen, request.out / base, state))


def part_scheme(part: str, precision: str) -> Scheme:
    """The scheme of a precision. Raises ConfigError if it is unknown or unavailable for a new part."""
    if precision not in SCHEMES:
        known = (*STORED, *(name for name in SCHEMES if name not in STORED))
        raise ConfigError(
            f"unknown precision {precision!r}",
            where=f"--precision {part}={precision}",
            expected=", ".join(known),
            do=suggest_only(precision, known),
        )
    chosen = scheme(precision)
    if chosen.calibrated:
        raise ConfigError(
            f"{precision} needs activation ranges, which are calibrated on a complete bundle",
            where=f"--precision {part}={precision}",
            do=f"export {part}=fp16, then run: animegamer-rt quantize BUNDLE --precision {part}={precision} --out NEW",
        )
    if is_excluded(part):
        raise ConfigError(
            f"{part} cannot be quantised", where=f"--precision {part}={precision}", expected=", ".join(STORED)
        )
    return chosen


def _run_step(step: Step, state: ExportState, progress: Progress, claim: Claim) -> None:
    target, work = state.folder / step.into, state.folder / WORK_FOLDER / "now"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    started = time.monotonic()
    with disk_full_error(state.folder, "it continues with this step"), progress.step(step.name, step.bytes) as advance:
        found = dict(step.make(work, advance))
    target.mkdir(parents=True, exist_ok=True)
    names = sorted(path.name for path in work.iterdir())
    files = [f"{step.into}/{name}" if step.into else name for name in names]
    if not step.into:
        for name in names:
            claim.check(name)
    state.announce(files)
    for name in names:
        replace(work / name, target / name)
    seconds = round(time.monotonic() - started, 1)
    # Record the step after all its files are in place.
    measured = {"seconds": seconds, "process_peak_memory_gib": _peak_memory_gib()}
    with progress.busy(f"{step.name}: hashing files"):
        state.record(step.name, step.key, files, made_of=step.made_of, **measured, **found)
    progress.finished(step.name, sum(state.steps[step.name]["files"].values()), seconds)


def _write(source: ExportSource, part: str, precision: str, work: Path, advance: Advance) -> Mapping[str, Any]:
    return {"parts": write_record(write_streamed(work, source.part(part), precision, advance))}


def _quantise(
    part: str, chosen: Scheme, base: Path, state: ExportState, work: Path, advance: Advance
) -> Mapping[str, Any]:
    written: dict[str, Any] = state.steps[f"{part} in {BASE_PRECISION}"]["parts"]
    sources = [base / entry["file"] for entry in written.values()]
    weights = next(name for entry in written.values() for name in entry["data_files"])
    report = rewrite_files(sources, work, weights, chosen, fp16_exclusions(part), written=advance)
    parts = {name: {**entry, "precision": chosen.name} for name, entry in written.items()}
    return {"parts": parts, "mean_weight_error": report.mean_error}


def _tokenizer(source: ExportSource, work: Path, advance: Advance) -> Mapping[str, Any]:
    (work / TOKENIZER[0]).write_bytes(source.tokenizer_model)
    (work / TOKENIZER[1]).write_text(json.dumps(dict(source.added_tokens), indent=0) + "\n", encoding="utf-8")
    return {}


def _motion_tokenizer(towers: Towers, work: Path, advance: Advance) -> Mapping[str, Any]:
    shutil.copyfile(towers.tokenizer, work / MOTION_MODEL)
    return {"motion_tokenizer": write_record(towers.motion_tokenizer)}


def _manifest(source: ExportSource, state: ExportState) -> Manifest:
    there = _finished_parts(source, state)
    parts = {
        name: read_record(Part, entry, f"{state.folder}: {step}")
        for step, record in state.steps.items()
        if step in there
        for name, entry in record["parts"].items()
    }
    motion = state.steps.get(MOTION_STEP, {}).get("motion_tokenizer", {}) if TEXT in there else {}
    return Manifest(
        format="",
        format_version=0,
        name=state.folder.absolute().name,
        description=source.description,
        origin=source.origin,
        geometry=source.sizes.geometry(default_plans.WINDOW_TOKENS),
        parts=parts,
        plans=default_plans.plan_entries(default_plans.default_plans()),
        files=state.files(),
        motion_tokenizer=read_record(MotionTokenizer, motion, f"{state.folder}: {MOTION_STEP}"),
        compatibility=default_plans.COMPATIBILITY,
        sizes=source.sizes.record(),
        world=RELEASE_WORLD,
        provenance={"made_of": dict(source.fingerprint), "export": state.as_provenance()},
        licence=default_plans.LICENCES[source.origin],
    )


def _bytes(source: ExportSource, part: str, precision: str) -> int:
    keeps = (lambda _: False) if precision in STORED else fp16_exclusions(part)
    width = 4 if precision == "fp32" else scheme(precision).bytes_a_weight
    total = 0.0
    for name, shape in source.shapes(part).items():
        rounded = len(shape) >= 2 and not name.endswith("positions")
        total += math.prod(shape) * ((2 if keeps(name) else width) if rounded else 4)
    return int(total)


def _peak_memory_gib() -> float | None:
    peak = peak_mib()
    return None if peak is None else round(peak / 1024, 2)
