"""The monitor: whether one is plugged in.

cage has no protocol that turns an output off. So the screen is off when the browser's unit is stopped: the empty
console blanks the monitor after a minute.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

CONNECTORS = Path("/sys/class/drm")


def connectors(folder: Path = CONNECTORS) -> Mapping[str, bool]:
    """Each connector of the graphics cards and whether a monitor is plugged in; empty where the system does not say."""
    found = {}
    for path in sorted(folder.glob("card*-*/status")):
        try:
            found[path.parent.name] = path.read_text().strip() == "connected"
        except OSError:  # the card has just gone
            continue
    return found


def monitor_there() -> bool:
    """Whether a monitor is plugged in. True where the system does not say."""
    states = connectors()
    return any(states.values()) or not states
