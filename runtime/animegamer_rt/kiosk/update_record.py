"""What became of the last update, in a file that `kiosk status` and the page for staff read."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from animegamer_rt.bundle.files import read_bounded, write_file

RECORD = Path("/var/lib/animegamer-kiosk/update.json")
MAX_BYTES, MAX_REASON = 16 * 1024, 600
CHECKS = 144
"""A version has proved itself after so many checks, one every ten minutes: a day of running."""


class Phase(Enum):
    """How far an update is."""

    INSTALLING = "installing"
    STARTING = "starting"
    """The new version is in use, and its first turn is waited for."""
    TRIAL = "trial"
    KEPT = "kept"
    REFUSED = "refused"
    """It was never in use."""
    TAKEN_BACK = "taken back"


RUNNING = (Phase.INSTALLING, Phase.STARTING)


@dataclass(frozen=True, slots=True)
class UpdateRecord:
    """The last update. at: local time of the last change. checks: how often the server was found ready since."""

    phase: Phase
    version: str
    old_version: str
    folder: str
    at: str
    checks: int = 0
    reason: str = ""

    def said(self) -> str:
        """In one line."""
        trial = f"{self.checks} of {CHECKS} checks passed"
        return {
            Phase.INSTALLING: f"{self.version} is being installed",
            Phase.STARTING: f"{self.version} is starting; {self.old_version} comes back if it does not play",
            Phase.TRIAL: f"{self.version} is on trial, {trial}; {self.old_version} is kept",
            Phase.KEPT: f"{self.version} has run for a day and stays",
            Phase.REFUSED: f"{self.version} was not installed: {self.reason}",
            Phase.TAKEN_BACK: f"{self.version} was taken back, {self.old_version} is in use again: {self.reason}",
        }[self.phase] + f" ({self.at})"


def read_record(path: Path) -> UpdateRecord | None:
    """The last update; None if there was none, or the file is none of ours."""
    try:
        fields = json.loads(read_bounded(path, MAX_BYTES))
        return UpdateRecord(**{**fields, "phase": Phase(fields["phase"]), "checks": int(fields["checks"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def write_record(path: Path, record: UpdateRecord) -> None:
    """Replace the file in one step. Raises OutputError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fields = {**dataclasses.asdict(record), "phase": record.phase.value, "reason": record.reason[-MAX_REASON:]}
    write_file(path, (json.dumps(fields, indent=1) + "\n").encode())
    path.chmod(0o644)
