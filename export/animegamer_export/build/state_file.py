"""Reads and writes `export.json`, the finished steps of an export. It exists until the bundle is complete.

A step is finished if its record has the same key and its files have the recorded sha256. Records are written
atomically, after the files, so a killed export resumes after the last record.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from animegamer_rt.bundle.files import sha256, write_file
from animegamer_rt.bundle.json_file import read_json
from animegamer_rt.bundle.manifest import FORMAT_NAME, FORMAT_VERSION, FileRecord
from animegamer_rt.bundle.manifest_file import MANIFEST, UNFINISHED

WORK_FOLDER = ".export"
FORMAT = FORMAT_VERSION
"""Parts of a bundle with another format are exported again."""


@dataclass(slots=True)
class ExportState:
    """Records by step: key, sizes and sha256 of its files, and its results."""

    folder: Path
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    whole: bool = False
    """Whether the folder held a complete bundle when opened."""
    unlisted: set[str] = field(default_factory=set)
    """The export's own files that no step lists: those of a repeated step, or about to be moved into place."""

    @classmethod
    def open(cls, folder: Path) -> ExportState:
        """The state of a folder: of an unfinished export, of a complete bundle's manifest, or new."""
        whole = (folder / MANIFEST).is_file() and not (folder / UNFINISHED).is_file()
        for name, place in ((UNFINISHED, ()), (MANIFEST, ("provenance", "export"))):
            data = _read(folder / name)
            for key in place:
                data = data.get(key, {}) if isinstance(data, dict) else {}
            if isinstance(data, dict) and data.get("format") == FORMAT and _are_steps(data.get("steps")):
                return cls(folder, dict(data["steps"]), whole=whole, unlisted=set(_texts(data.get("unlisted"))))
        return cls(folder, whole=whole)

    def done(self, step: str, key: str) -> bool:
        """Whether the step is finished and its files are unchanged."""
        record = self.steps.get(step)
        if record is None or record["key"] != key:
            return False
        sizes: Mapping[str, int] = record["files"]
        hashes: Mapping[str, str] = record.get("sha256", {})
        return all(_size(self.folder / name) == size for name, size in sizes.items()) and all(
            sha256(self.folder / name) == hashes.get(name) for name in sizes
        )

    def begin(self, missing: Sequence[str]) -> None:
        """Marks the bundle as incomplete; `missing` names the missing parts."""
        self.missing = list(missing)
        self._write()

    def forget(self, step: str) -> None:
        """Drops the record of a step to be repeated. Its files remain the export's own."""
        self.unlisted |= set(self.steps.pop(step, {}).get("files", ()))

    def announce(self, files: Sequence[str]) -> None:
        """Lists the files about to be moved into place, so that a killed export recognises them as its own."""
        self.unlisted |= set(files)
        self._write()

    def record(self, step: str, key: str, files: Sequence[str], **found: Any) -> None:
        """Records a finished step, whose files are in the folder, and its results."""
        sizes = {name: (self.folder / name).stat().st_size for name in files}
        hashes = {name: sha256(self.folder / name) for name in files}
        self.steps[step] = {"key": key, "files": sizes, "sha256": hashes, **found}
        self.missing = [name for name in self.missing if name != step]
        self.unlisted -= set(files)
        self._write()

    def files(self) -> dict[str, FileRecord]:
        """Sizes and sha256 of all steps' files as written, to detect later damage."""
        return {
            name: FileRecord(record["files"][name], digest)
            for record in self.steps.values()
            for name, digest in record.get("sha256", {}).items()
        }

    def as_provenance(self) -> dict[str, Any]:
        """The records as stored in the complete bundle's manifest."""
        return {"format": FORMAT, "steps": self.steps}

    def close(self) -> None:
        """Deletes the file: the bundle is complete and has its manifest."""
        (self.folder / UNFINISHED).unlink(missing_ok=True)

    def _write(self) -> None:
        data = {"format": FORMAT, "missing": self.missing, "steps": self.steps, "unlisted": sorted(self.unlisted)}
        write_file(self.folder / UNFINISHED, (json.dumps(data, indent=1) + "\n").encode())


def step_key(*what: Any) -> str:
    """A short hash of everything that determines a step's result."""
    return hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _read(path: Path) -> dict[str, Any]:
    """A JSON object; empty if the file is missing or damaged, so that the steps run again."""
    try:
        data = read_json(path)
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def own_files(folder: Path) -> set[str] | None:
    """The export's files in the folder, listed by export.json or the bundle's manifest; None if it has neither.

    A folder with export.json has the export's work folder too.
    """
    state, manifest = _read(folder / UNFINISHED), _read(folder / MANIFEST)
    if _are_steps(state.get("steps")) and isinstance(state.get("missing"), list):
        found, steps = {UNFINISHED, WORK_FOLDER, *_texts(state.get("unlisted"))}, state["steps"]
        found |= {MANIFEST} if _is_bundle(manifest) else set()
    elif _is_bundle(manifest) and not os.path.lexists(folder / UNFINISHED):
        found, steps = {MANIFEST}, manifest["provenance"]["export"]["steps"]
    else:
        return None
    if _is_bundle(manifest):
        found |= set(manifest["files"])
    return found.union(*(record["files"] for record in steps.values()))


def _is_bundle(manifest: Mapping[str, Any]) -> bool:
    """Whether this is the manifest of an exported bundle."""
    made = manifest.get("provenance")
    export = made.get("export") if isinstance(made, dict) else None
    steps = export.get("steps") if isinstance(export, dict) else None
    return manifest.get("format") == FORMAT_NAME and isinstance(manifest.get("files"), dict) and _are_steps(steps)


def _are_steps(steps: Any) -> bool:
    """Whether these look like records of steps: a key, and sizes and hashes of files."""
    return isinstance(steps, dict) and all(
        isinstance(record, dict)
        and isinstance(record.get("key"), str)
        and all(isinstance(record.get(name, {}), dict) for name in ("files", "sha256", "parts"))
        and "files" in record
        for record in steps.values()
    )


def _texts(value: Any) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1
