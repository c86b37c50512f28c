"""The peak memory of this process so far."""

from __future__ import annotations

import re
import sys
from pathlib import Path


def peak_mib() -> float | None:
    """The largest resident size in MiB, including pages of mapped files; None on Windows."""
    status = Path("/proc/self/status")
    if status.is_file():
        # Not getrusage: on Linux its peak starts at the parent's size.
        return round(int(re.findall(r"VmHWM:\s+(\d+) kB", status.read_text())[0]) / 1024, 1)
    if sys.platform == "win32":
        return None
    import resource

    # Bytes on macOS, KiB elsewhere.
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2 ** (20 if sys.platform == "darwin" else 10), 1)
