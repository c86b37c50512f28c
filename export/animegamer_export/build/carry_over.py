"""What a bundle that is exported again keeps of the manifest it had: calibrated plans, built engines, measured figures.

It does not know how parts are made.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from animegamer_rt.bundle.config import read_record
from animegamer_rt.bundle.loader import MANIFEST
from animegamer_rt.bundle.manifest import FORMAT_VERSION, Manifest, clear_fidelity
from animegamer_rt.errors import ConfigError


def carry_over(fresh: Manifest, folder: Path) -> Manifest:
    """The fresh manifest with what the folder's earlier one has beyond it.

    Plans stay with the denoiser that they were made for, their figures and the bundle's as long as no part changes, and
    engines as long as their files are there: one that was built from other weights is refused when it is loaded.
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
    """The manifest that is there, or None where nothing can be taken over from it."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        manifest = read_record(Manifest, data, str(path))
    except (OSError, ValueError, ConfigError):
        return None
    return manifest if manifest.format_version == FORMAT_VERSION else None


def _denoiser(manifest: Manifest) -> Any:
    """What the denoiser was made of, whatever its precision."""
    steps = manifest.provenance.get("export", {}).get("steps", {})
    return steps.get("denoiser", {}).get("made_of")
