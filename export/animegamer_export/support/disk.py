"""Whether there is room for what will be written, before it is, and what is said when the disk is full all the same."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from animegamer_rt.errors import OutputError

SPARE_BYTES = 64 * 2**20
"""For the graphs, the manifest and the file system's own needs."""
DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)


def require_space(folder: Path, needed: int, do: str) -> None:
    """Raises OutputError, which says `do`, when the disk of `folder` (it need not exist yet) has not `needed` bytes."""
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
            do=do,
        )


@contextmanager
def disk_full_error(where: Path, then: str) -> Iterator[None]:
    """Makes an OutputError of a disk that fills up within; `then` is what running it again does."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL_ERRNOS:
            raise
        raise OutputError("the disk is full", where=where, do=f"make room, and run it again: {then}") from error
