"""The monitor: whether one is plugged in.

cage cannot turn an output off. So the screen is turned off by stopping the browser's unit: the empty console blanks the
monitor after a minute.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

CONNECTORS = Path("/sys/class/drm")


def connectors(folder: Path = CONNECTORS) -> Mapping[str, bool]:
    """The GPUs' connectors, and whether each has a monitor; empty if the system does not report it."""
    found = {}
    for path in sorted(folder.glob("card*-*/status")):
        try:
            found[path.parent.name] = path.read_text().strip() == "connected"
        except OSError:  # the GPU has just disappeared
            continue
    return found


def monitor_there() -> bool:
    """Whether a monitor is plugged in. True if the system does not report it."""
    states = connectors()
    return any(states.values()) or not states
