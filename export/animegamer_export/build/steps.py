"""The steps of an export: each writes one part of the bundle, or a tokenizer."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from animegamer_export.evaluate.turns import RELEASE_WORLD
from animegamer_export.parts.streamed.write import STORED, write_streamed
from animegamer_export.quantize.exclusions import fp16_exclusions, is_excluded
from animegamer_export.quantize.scheme import SCHEMES, Scheme, scheme
from animegamer_export.quantize.weights import rewrite_files
from animegamer_export.support.new_bundle import new_bundle
from animegamer_export.support.peak_memory import peak_mib
from animegamer_export.support.progress import Progress
from animegamer_export.towers.parts import MOTION_MODEL, TEXT, Towers
from animegamer_rt.bundle.config import suggest_only
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import Manifest, MotionTokenizer, Part
from animegamer_rt.bundle.roles import PLAY_ROLES
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.errors import ConfigError

from . import default_plans
from .weight_source import ExportSource

TOKENIZER = ("tokenizer.model", "added_tokens.json")
BASE_PRECISION = "fp16"
"""Quantised parts are made from this precision, whose error is a thousandth of the most accurate scheme's."""

Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Made:
    """What a step has written: its graphs, and figures for the manifest's provenance."""

    parts: Mapping[str, Part] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """One step: roughly how many bytes it writes, and its function of the folder and a callback for each write."""

    name: str
    bytes: int
    make: Callable[[Path, Advance], Made]


def export(source: ExportSource, precision: Mapping[str, str], out: Path, progress: Progress) -> Bundle:
    """Writes the bundle to `out`, which must be new or empty and appears once the bundle is complete.

    precision: of each part to export. Raises ConfigError without a part that every turn needs, CheckpointError for a
    weight that its precision cannot hold or a file that changed meanwhile, and what `new_bundle` raises.
    """
    if lacking := [part for part in PLAY_ROLES if part not in precision]:
        raise ConfigError("a bundle needs more parts", where="--parts", do=f"add {','.join(lacking)}")
    out, steps = Path(os.path.abspath(out)), list(export_steps(source, precision))
    with new_bundle(out, sum(step.bytes for step in steps)) as folder:
        made = {step.name: run_step(step, folder, progress) for step in steps}
        source.require_unchanged()
        with progress.busy("hashing files"):
            manifest = write_manifest(folder, _manifest(source, out.name, made)).manifest
    return Bundle(out, manifest)


def export_steps(source: ExportSource, precision: Mapping[str, str]) -> Iterator[Step]:
    """A step for each part, in its precision, and for each tokenizer."""
    for part, name in precision.items():
        size = _bytes(source, part, name)
        if name in STORED:
            yield Step(part, size, partial(_write, source, part, name))
        else:
            chosen = part_scheme(part, name)
            yield Step(part, size + _bytes(source, part, BASE_PRECISION), partial(_quantise, source, part, chosen))
    yield Step("tokenizer", 0, partial(_tokenizer, source))
    if source.towers is not None and TEXT in precision:
        yield Step("motion tokenizer", 0, partial(_motion_tokenizer, source.towers))


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


def run_step(step: Step, folder: Path, progress: Progress) -> Made:
    """Runs a step; the figures include its seconds and the process's peak memory so far."""
    before, started = set(folder.iterdir()), time.monotonic()
    with progress.step(step.name, step.bytes) as advance:
        made = step.make(folder, advance)
    seconds, peak = round(time.monotonic() - started, 1), peak_mib()
    progress.finished(step.name, sum(path.stat().st_size for path in set(folder.iterdir()) - before), seconds)
    measured = {"seconds": seconds, "process_peak_memory_gib": None if peak is None else round(peak / 1024, 2)}
    return replace(made, figures={**measured, **made.figures})


def _write(source: ExportSource, part: str, precision: str, folder: Path, advance: Advance) -> Made:
    return Made(write_streamed(folder, source.part(part), precision, advance))


def _quantise(source: ExportSource, part: str, chosen: Scheme, folder: Path, advance: Advance) -> Made:
    base = folder / BASE_PRECISION
    base.mkdir()
    written = write_streamed(base, source.part(part), BASE_PRECISION, advance)
    sources = [base / one.file for one in written.values()]
    weights = next(name for one in written.values() for name in one.data_files)
    report = rewrite_files(sources, folder, weights, chosen, fp16_exclusions(part), written=advance)
    shutil.rmtree(base)
    parts = {name: replace(one, precision=chosen.name) for name, one in written.items()}
    return Made(parts, {"mean_weight_error": report.mean_error})


def _tokenizer(source: ExportSource, folder: Path, advance: Advance) -> Made:
    (folder / TOKENIZER[0]).write_bytes(source.tokenizer_model)
    (folder / TOKENIZER[1]).write_text(json.dumps(dict(source.added_tokens), indent=0) + "\n", encoding="utf-8")
    return Made()


def _motion_tokenizer(towers: Towers, folder: Path, advance: Advance) -> Made:
    shutil.copyfile(towers.tokenizer, folder / MOTION_MODEL)
    return Made()


def _manifest(source: ExportSource, name: str, made: Mapping[str, Made]) -> Manifest:
    parts = {graph: part for one in made.values() for graph, part in one.parts.items()}
    towers = source.towers if TEXT in parts else None
    return Manifest(
        format="",
        format_version=0,
        name=name,
        description=source.description,
        origin=source.origin,
        geometry=source.sizes.geometry(default_plans.WINDOW_TOKENS),
        parts=parts,
        files={},
        plans=default_plans.plan_entries(default_plans.default_plans()),
        motion_tokenizer=MotionTokenizer() if towers is None else towers.motion_tokenizer,
        compatibility=default_plans.COMPATIBILITY,
        sizes=source.sizes.record(),
        world=RELEASE_WORLD,
        provenance={
            "made_of": dict(source.made_of),
            "export": {step: dict(one.figures) for step, one in made.items()},
        },
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
