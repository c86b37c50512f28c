"""`animegamer-rt info`: describes a bundle, as tables for people or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from animegamer_rt.bundle import search
from animegamer_rt.bundle.config import write_record
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import EXACT, RANDOM_WEIGHTS, Manifest, PlanEntry
from animegamer_rt.bundle.roles import (
    DENOISER,
    ENCODER,
    IMAGE_TOWER,
    PICTURE_READER,
    PREDICTOR,
    READER,
    TEXT_TOWER,
    VAE,
)
from animegamer_rt.untrusted import plain

PLAN_FIGURES = {"psnr_db": "PSNR, dB", "ssim": "SSIM", "latent_relative_error": "latent error"}
"""Columns of the plans' table: field of the fidelity record -> heading."""

UNFOLDED = 20_000
"""Width for output into a pipe, so that no path is wrapped."""
PART_ROLES = {
    ENCODER: "picture and motion words -> shot; not needed to play",
    TEXT_TOWER: "motion words -> features for the encoder",
    IMAGE_TOWER: "picture -> features for the encoder",
    READER: "everyday words and the scene so far -> the new scene",
    PICTURE_READER: "picture -> the scene that a game starts from",
    PREDICTOR: "prompt -> shot and the first state choice; a choice -> the next",
    DENOISER: "shot -> latent, one call per step",
    VAE: "first 3 latent frames -> 9 video frames; 2 further ones -> 8",
}


def print_bundle(bundle: Bundle, console: Console) -> None:
    """Print a bundle's description, contents and measured quality. Tables fit 80 columns."""
    manifest, geometry = bundle.manifest, bundle.manifest.geometry
    console.print(Text.assemble((plain(manifest.name), "bold"), f"  {plain(manifest.description)}"))
    if manifest.origin == RANDOM_WEIGHTS:
        console.print("[bold red]random weights: only for measuring time and memory; the pictures are noise[/]")
    facts = {
        "folder": str(bundle.folder),
        "origin": manifest.origin,
        "size": describe_size(bundle),
        "a turn": f"{geometry.frames} frames of {geometry.width} x {geometry.height} pixels (width x height) "
        f"at {geometry.fps} frames/s: {geometry.frames / geometry.fps:.1f} s of video",
        "latent": f"{geometry.latent_frames} frames of {geometry.latent_channels} channels, "
        f"{geometry.latent_width} x {geometry.latent_height}",
        "shot": f"{geometry.shot_tokens} tokens of width {geometry.shot_width}",
        "history": f"{manifest.compatibility.history_turns} earlier turns",
        "licence": manifest.licence or "not stated",
    }
    console.print(table("", ("", ""), facts.items(), headed=False))
    world = manifest.world
    words = {"characters": world.characters, "motions": world.motions, "adverbs": world.adverbs, "places": world.places}
    if manifest.reader is not None:  # in everyday words; clothes and positions too
        words |= {"clothes": manifest.reader.clothes_words, "positions": manifest.reader.position_words}
    if any(words.values()):
        known = [(name, ", ".join(listed)) for name, listed in words.items() if listed]
        console.print(table("Words that the model knows", ("", ""), known, headed=False))
    roles = bundle.graph_roles
    parts = [
        (name, part.precision, f"{_part_bytes(bundle, name) / 1e6:.2f}", PART_ROLES.get(roles.get(name, ""), ""))
        for name, part in manifest.parts.items()
    ]
    console.print(table("Parts", ("part", "weights", "MB", "what it does"), parts))
    _print_plans(manifest.plans, console)
    console.print(table("Compatibility", ("setting", "value"), write_record(manifest.compatibility).items()))
    _print_quality(manifest, console)
    for engine in manifest.engines.values():
        console.print(Text(plain(f"engine {engine.file}: built for {_line(engine.built_for)}")))


def describe_size(bundle: Bundle) -> str:
    """The size of a verified bundle."""
    return f"{bundle.bytes / 1e6:.1f} MB in {len(bundle.manifest.files)} files, all verified"


def list_bundles(console: Console) -> None:
    """Print the bundles that are found by name."""
    rows = [(name, str(folder)) for name, folder in search.list_bundles().items()]
    if not console.is_terminal:
        console.width = UNFOLDED  # a wrapped path is useless to a program
    console.print(table("Bundles found by name", ("name", "folder"), rows))


def as_json(bundle: Bundle) -> str:
    """The whole manifest and its location, for programs."""
    return json.dumps({"folder": str(bundle.folder), **write_record(bundle.manifest)}, indent=2)


def table(title: str, columns: Sequence[str], rows: Iterable[Iterable[object]], headed: bool = True) -> Table:
    """A table whose cells are foreign text; the first column names the rows."""
    shown = Table(
        title=title or None, title_justify="left", title_style="bold", show_header=headed, box=None, padding=(0, 2)
    )
    for number, column in enumerate(columns):
        shown.add_column(column, style="cyan" if number == 0 else None, overflow="fold", header_style="dim")
    for row in rows:
        shown.add_row(*(Text(plain(str(cell))) for cell in row))
    return shown


def _part_bytes(bundle: Bundle, name: str) -> int:
    part = bundle.manifest.parts[name]
    return sum(bundle.manifest.files[file].bytes for file in part.files)


def _print_plans(plans: Mapping[str, PlanEntry], console: Console) -> None:
    rows, conditions = [], []
    for name, entry in plans.items():
        label = f"{name} (default)" if entry.default else name
        measured = [_value(entry.fidelity[figure]) if figure in entry.fidelity else "" for figure in PLAN_FIGURES]
        if not any(measured):
            measured[0] = "reference" if name == EXACT else "see below" if entry.fidelity else "not measured"
        rows.append((label, _steps(entry.plan), *measured))
        others = {**entry.parts, **{key: value for key, value in entry.fidelity.items() if key not in PLAN_FIGURES}}
        if others:
            conditions.append(f"{name}: {_line(others)}")
    console.print(table("Plans, compared with exact", ("plan", "steps", *PLAN_FIGURES.values()), rows))
    for line in conditions:
        console.print(Padding(Text(plain(line), "dim"), (0, 0, 0, 2)))


def _print_quality(manifest: Manifest, console: Console) -> None:
    """Print measured figures: one column per plan, and a table for those that concern no plan."""
    plans = [name for name in manifest.quality if name in manifest.plans]
    others = {name: value for name, value in manifest.quality.items() if name not in plans}
    if others:
        console.print(table("Measured quality", ("figure", "value"), _flat(others)))
    if plans:
        columns = [dict(_flat(manifest.quality[name])) for name in plans]
        figures = dict.fromkeys(figure for column in columns for figure in column)
        rows = [(figure, *(column.get(figure, "") for column in columns)) for figure in figures]
        console.print(table("Measured quality by plan", ("figure", *plans), rows))


def _steps(plan: Mapping[str, object]) -> str:
    steps = plan.get("steps")
    return str(len(steps)) if isinstance(steps, (list, tuple)) else str(steps)


def _flat(values: Mapping[str, object], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in values.items():
        name = f"{prefix}{key.replace('_', ' ')}"
        rows += _flat(value, f"{name}: ") if isinstance(value, Mapping) else [(name, _value(value))]
    return rows


def _line(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in _flat(values))


def _value(value: object) -> str:
    if value is None:
        return "not measured"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(_value(item) for item in value)
    return str(value)
