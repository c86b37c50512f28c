"""The monitor: whether one is plugged in, and turning a television on and off by HDMI-CEC.

cage has no protocol that turns an output off. So the screen is off when the browser's unit is stopped: the empty
console blanks the monitor after a minute. HDMI-CEC is for televisions that would show "no signal" instead.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

CONNECTORS = Path("/sys/class/drm")
CEC_DEVICE = "/dev/cec0"
TIMEOUT_S = 15.0

log = logging.getLogger(__name__)


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


def turn_television(on: bool) -> None:
    """Turn a television on or off by HDMI-CEC, if there is such a port and cec-ctl. A failure is logged, no more."""
    if not Path(CEC_DEVICE).exists() or shutil.which("cec-ctl") is None:
        return
    command = ["cec-ctl", "-d", CEC_DEVICE, "--playback", "--to", "0", "--image-view-on" if on else "--standby"]
    try:
        subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("the television was not reached: %s", error)
