"""Puts the checkout's commit into the wheel, so that a record that an installed package measures can name it.

ANIMEGAMER_COMMIT names it where there is no git. Without either the wheel has none, and records name the version.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

INSTALLED = "animegamer_rt/commit.txt"
MEASURED = ("runtime", "benchmarks/bench", "engines", "kernels")
"""Paths whose changes mark the commit with `+`."""


class CommitHook(BuildHookInterface):
    """Called by hatchling for the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file. An editable install needs none: it asks its checkout."""
        commit = None if version == "editable" else os.environ.get("ANIMEGAMER_COMMIT") or _commit(Path(self.root))
        if commit is not None:
            with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False, encoding="utf-8") as written:
                written.write(f"{commit}\n")
            self._written = Path(written.name)
            build_data["force_include"][written.name] = INSTALLED

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the file that was added."""
        if hasattr(self, "_written"):
            self._written.unlink()


def _commit(root: Path) -> str | None:
    if not (root / ".git").exists():  # a copy inside some other checkout
        return None
    try:
        head = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], cwd=root, capture_output=True, text=True)
        changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", *MEASURED], cwd=root)
    except OSError:
        return None
    return None if head.returncode else head.stdout.strip() + ("+" if changed.returncode else "")
