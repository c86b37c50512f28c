"""`animegamer-rt info`: a bundle explained, as tables for people or as JSON.

Knows the manifest's fields; it opens no part.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from animegamer_rt.bundle import loader as bundles
from animegamer_rt.bundle.config import write_record
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import EXACT, RANDOM_WEIGHTS, PlanEntry

ROOMS = {
    "encoder": "picture and motion words -> shot; not needed to play",
    "text_tower": "motion words -> features for the encoder",
    "image_tower": "picture -> features for the encoder",
    "predictor": "prompt -> shot and the first state choice; a choice -> the next",
    "denoiser": "shot -> latent, one call a step",
    "vae_first": "first 3 latent frames -> 9 video frames",
    "vae_next": "2 latent frames more -> 8 video frames",
}


def print_bundle(bundle: Bundle, console: Console) -> None:
    """Print what the bundle is, holds, can do and was measured at."""
    manifest, geometry = bundle.manifest, bundle.manifest.geometry
    console.print(Text.assemble((manifest.name, "bold"), f"  {manifest.description}"))
    if manifest.origin == RANDOM_WEIGHTS:
        console.print("[bold red]random weights: good for time and memory only; its pictures mean nothing[/]")
    facts = {
        "folder": str(bundle.folder),
        "origin": manifest.origin,
        "size": size_words(bundle),
        "a turn": f"{geometry.frames} frames of {geometry.height} x {geometry.width} at {geometry.fps} fps "
        f"({geometry.frames / geometry.fps:.1f} s of play)",
        "latent": f"{geometry.latent_frames} frames of {geometry.latent_channels} channels, "
        f"{geometry.latent_height} x {geometry.latent_width}",
        "shot": f"{geometry.shot_tokens} tokens of width {geometry.shot_width}",
        "history": f"{manifest.compatibility.history_turns} earlier turns",
        "licence": manifest.licence or "not stated",
    }
    console.print(_table("", ("", ""), facts.items(), headed=False))
    parts = [
        (name, part.precision, f"{_part_bytes(bundle, name) / 1e6:.2f} MB", ROOMS.get(name, ""))
        for name, part in manifest.parts.items()
    ]
    console.print(_table("Parts", ("part", "weights", "size", "what it does"), parts))
    plans = [
        (f"{name} (default)" if entry.default else name, _steps(entry.plan), _fidelity(name, entry))
        for name, entry in manifest.plans.items()
    ]
    console.print(_table("Plans", ("plan", "steps", "fidelity against exact"), plans))
    console.print(_table("Compatibility", ("setting", "value"), write_record(manifest.compatibility).items()))
    if manifest.quality:
        console.print(_table("Measured quality", ("figure", "value"), _flat(manifest.quality)))
    world = manifest.world
    words = {"characters": world.characters, "motions": world.motions, "adverbs": world.adverbs, "places": world.places}
    if any(words.values()):
        console.print(
            _table("World", ("", ""), [(name, ", ".join(known)) for name, known in words.items() if known], False)
        )
    for engine in manifest.engines.values():
        console.print(Text(f"engine {engine.file}: built for {_line(engine.built_for)}"))


def size_words(bundle: Bundle) -> str:
    """How large a verified bundle is, and how much of it the disk holds once for this and other bundles."""
    shared = f"; {bundle.shared_bytes / 1e6:.1f} MB shared with other bundles" if bundle.shared_bytes else ""
    return f"{bundle.bytes / 1e6:.1f} MB in {len(bundle.manifest.files)} files, every one verified{shared}"


def list_bundles(console: Console) -> None:
    """Print the bundles that are found by name."""
    rows = [(name, str(folder)) for name, folder in bundles.list_bundles().items()]
    console.print(_table("Bundles found by name", ("name", "folder"), rows))


def as_json(bundle: Bundle) -> str:
    """The whole manifest and where it lies, for programs."""
    return json.dumps({"folder": str(bundle.folder), **write_record(bundle.manifest)}, indent=2, ensure_ascii=False)


def _table(title: str, columns: Sequence[str], rows: Iterable[Iterable[object]], headed: bool = True) -> Table:
    table = Table(
        title=title or None, title_justify="left", title_style="bold", show_header=headed, box=None, padding=(0, 2)
    )
    for number, column in enumerate(columns):
        table.add_column(column, style="cyan" if number == 0 else None, overflow="fold", header_style="dim")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    return table


def _part_bytes(bundle: Bundle, name: str) -> int:
    part = bundle.manifest.parts[name]
    return sum(bundle.manifest.files[file].bytes for file in part.files)


def _fidelity(name: str, entry: PlanEntry) -> str:
    return _line(entry.fidelity) or ("the measure" if name == EXACT else "not measured")


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
