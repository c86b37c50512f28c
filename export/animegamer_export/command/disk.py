"""Whether there is room for what an export will write, before it writes anything."""

from __future__ import annotations

import shutil
from pathlib import Path

from animegamer_rt.errors import OutputError

SPARE_BYTES = 64 * 2**20
"""For the graphs, the manifest and the file system's own needs."""


def require_space(folder: Path, needed: int) -> None:
    """Raises OutputError when the disk of `folder` (which need not exist yet) has not `needed` bytes free."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if needed + SPARE_BYTES > free:
        raise OutputError(
            "not enough room on this disk",
            where=folder,
            found=f"{free / 1e9:.1f} GB free",
            expected=f"{(needed + SPARE_BYTES) / 1e9:.1f} GB",
            do="give another --out, free some space, or export fewer --parts at a time",
        )
