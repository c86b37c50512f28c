"""What an export has done so far: `export.json`, there as long as the bundle is not whole.

A step is done when its record is here, with the same key, and its files are those recorded, byte for byte.
Records appear whole or not at all, after their files: whatever moment an export is killed at, the next one goes on from
the last record.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from animegamer_rt.bundle.files import sha256
from animegamer_rt.bundle.loader import MANIFEST, UNFINISHED
from animegamer_rt.bundle.manifest import FORMAT_VERSION, FileRecord

FORMAT = FORMAT_VERSION
"""A bundle of another format is made again, every part of it."""


@dataclass(slots=True)
class ExportState:
    """The records by step: its key, its files with their bytes and their sha256, and what it found."""

    folder: Path
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    whole: bool = False
    """Whether a whole bundle was there when it was opened."""

    @classmethod
    def open(cls, folder: Path) -> ExportState:
        """The state of a folder: of an export under way, of the whole bundle that is there, or a new one."""
        whole = (folder / MANIFEST).is_file() and not (folder / UNFINISHED).is_file()
        for name, place in ((UNFINISHED, ()), (MANIFEST, ("provenance", "export"))):
            data = _read(folder / name)
            for key in place:
                data = data.get(key, {})
            if data.get("format") == FORMAT:
                return cls(folder, dict(data["steps"]), whole=whole)
        return cls(folder, whole=whole)

    def done(self, step: str, key: str) -> bool:
        """Whether the step needs not be done again."""
        record = self.steps.get(step)
        if record is None or record["key"] != key:
            return False
        sizes: Mapping[str, int] = record["files"]
        hashes: Mapping[str, str] = record.get("sha256", {})
        return all(_size(self.folder / name) == size for name, size in sizes.items()) and all(
            sha256(self.folder / name) == hashes.get(name) for name in sizes
        )

    def begin(self, missing: Sequence[str]) -> None:
        """From now on the bundle is not whole: `missing` says in words what it lacks."""
        self.missing = list(missing)
        self._write()

    def record(self, step: str, key: str, files: Sequence[str], **found: Any) -> None:
        """Notes a finished step, whose files lie in the folder."""
        sizes = {name: (self.folder / name).stat().st_size for name in files}
        hashes = {name: sha256(self.folder / name) for name in files}
        self.steps[step] = {"key": key, "files": sizes, "sha256": hashes, **found}
        self.missing = [name for name in self.missing if name != step]
        self._write()

    def files(self) -> dict[str, FileRecord]:
        """The files of all steps as they were when they were written: what becomes of one later is then found."""
        return {
            name: FileRecord(record["files"][name], digest)
            for record in self.steps.values()
            for name, digest in record.get("sha256", {}).items()
        }

    def as_provenance(self) -> dict[str, Any]:
        """What the whole bundle's manifest keeps of it."""
        return {"format": FORMAT, "steps": self.steps}

    def close(self) -> None:
        """The bundle is whole: its manifest is there."""
        (self.folder / UNFINISHED).unlink(missing_ok=True)

    def _write(self) -> None:
        partial = self.folder / (UNFINISHED + ".part")
        data = {"format": FORMAT, "missing": self.missing, "steps": self.steps}
        partial.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        os.replace(partial, self.folder / UNFINISHED)


def step_key(*what: Any) -> str:
    """A short hash of all that a step's result depends on."""
    return hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _read(path: Path) -> dict[str, Any]:
    """A JSON object, or nothing if it is not there or not whole: then the steps are done again."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1
