"""Keeps searched plans, engines and measured figures when a bundle is exported again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from animegamer_export.support.plans import clear_fidelity
from animegamer_rt.bundle.config import read_record
from animegamer_rt.bundle.manifest import Manifest
from animegamer_rt.bundle.manifest_file import FORMAT_VERSIONS, MANIFEST
from animegamer_rt.bundle.roles import CHOICES, DENOISER, graph_names
from animegamer_rt.errors import ConfigError


def carry_over(fresh: Manifest, folder: Path) -> Manifest:
    """The fresh manifest plus what is still valid in the folder's earlier manifest.

    Plans are kept if the denoiser comes from the same checkpoint, and parts that only they use if those that they stand
    in for do; figures and the bundle's quality if no part changes; engines if their files exist (the runtime rejects
    engines built from other weights).
    """
    earlier = _read_earlier(folder / MANIFEST)
    if earlier is None:
        return fresh
    engines = {name: engine for name, engine in earlier.engines.items() if (folder / engine.file).is_file()}
    built = {engine.file: earlier.files[engine.file] for engine in engines.values()}
    fresh = replace(fresh, engines=engines, files={**built, **fresh.files})
    changed = {role for role in CHOICES if _made_of(fresh, role) != _made_of(earlier, role)}
    if DENOISER in changed:
        return fresh
    plans = {name: entry for name, entry in earlier.plans.items() if not changed & entry.parts.keys()}
    own = {graph for entry in plans.values() for item in entry.parts.items() for graph in graph_names(*item)}
    own_parts = {graph: earlier.parts[graph] for graph in own - fresh.parts.keys()}
    kept = {file: earlier.files[file] for part in own_parts.values() for file in part.files}
    parts, sizes = {**fresh.parts, **own_parts}, {**earlier.sizes, **fresh.sizes}
    fresh = replace(fresh, parts=parts, sizes=sizes, files={**kept, **fresh.files})
    parts_files = [name for part in earlier.parts.values() for name in part.files]
    if all(fresh.files.get(name) == earlier.files[name] for name in parts_files):
        return replace(fresh, plans=earlier.plans, quality=earlier.quality)
    return replace(fresh, plans=clear_fidelity(plans))


def _read_earlier(path: Path) -> Manifest | None:
    """The earlier manifest, or None if it is missing, damaged or of another format."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        manifest = read_record(Manifest, data, str(path))
    except (OSError, ValueError, ConfigError):
        return None
    return manifest if manifest.format_version in FORMAT_VERSIONS else None


def _made_of(manifest: Manifest, role: str) -> Any:
    """Identifies the checkpoint of a role's default part, regardless of precision."""
    steps = manifest.provenance.get("export", {}).get("steps", {})
    return steps.get(role, {}).get("made_of")
