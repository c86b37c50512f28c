"""Carries over searched plans, engines and measured figures when a bundle is exported again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from animegamer_rt.bundle.config import read_record
from animegamer_rt.bundle.loader import MANIFEST
from animegamer_rt.bundle.manifest import FORMAT_VERSION, READER_FORMAT_VERSION, Manifest, clear_fidelity
from animegamer_rt.errors import ConfigError


def carry_over(fresh: Manifest, folder: Path) -> Manifest:
    """The fresh manifest with what the folder's earlier manifest adds.

    Plans are kept while the denoiser is made of the same checkpoint; their figures and the bundle's quality while no
    part changes; engines while their files exist (the runtime refuses engines built from other weights).
    """
    earlier = _read_earlier(folder / MANIFEST)
    if earlier is None:
        return fresh
    engines = {name: engine for name, engine in earlier.engines.items() if (folder / engine.file).is_file()}
    built = {engine.file: earlier.files[engine.file] for engine in engines.values()}
    fresh = replace(fresh, engines=engines, files={**built, **fresh.files})
    if _denoiser(fresh) != _denoiser(earlier):
        return fresh
    parts_files = [name for part in earlier.parts.values() for name in part.files]
    if all(fresh.files.get(name) == earlier.files[name] for name in parts_files):
        return replace(fresh, plans=earlier.plans, quality=earlier.quality)
    return replace(fresh, plans=clear_fidelity(earlier.plans))


def _read_earlier(path: Path) -> Manifest | None:
    """The earlier manifest, or None if it is missing, damaged or of another format."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        manifest = read_record(Manifest, data, str(path))
    except (OSError, ValueError, ConfigError):
        return None
    return manifest if manifest.format_version in (FORMAT_VERSION, READER_FORMAT_VERSION) else None


def _denoiser(manifest: Manifest) -> Any:
    """Key of the denoiser's checkpoint, regardless of precision."""
    steps = manifest.provenance.get("export", {}).get("steps", {})
    return steps.get("denoiser", {}).get("made_of")
