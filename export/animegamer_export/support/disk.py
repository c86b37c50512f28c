"""Checks for disk space before a write, and reports a disk that fills up during one."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from animegamer_rt.bundle.files import write_error
from animegamer_rt.errors import OutputError

SPARE_BYTES = 64 * 2**20
"""Room for the graphs, the manifest and the file system."""
DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)


def require_space(folder: Path, needed: int, do: str) -> None:
    """Raises OutputError with the advice `do` if the disk of `folder` has less than `needed` bytes free.

    The folder need not exist.
    """
    try:
        place = folder.absolute()
        while not os.path.exists(place):
            place = place.parent
        free = shutil.disk_usage(place).free
    except OSError as error:
        raise write_error(folder, error) from error
    if needed + SPARE_BYTES > free:
        raise OutputError(
            "not enough space on the disk",
            where=folder,
            found=f"{free / 1e9:.1f} GB free",
            expected=f"{(needed + SPARE_BYTES) / 1e9:.1f} GB",
            do=do,
        )


@contextmanager
def disk_full_error(where: Path, then: str) -> Iterator[None]:
    """Turns an OSError inside the block into an OutputError; `then` says what another run will do."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL_ERRNOS:
            do = f"free some space and run it again: {then}"
            raise OutputError("the disk is full", where=where, do=do) from error
        found = (error.strerror or str(error)).lower()
        place = where if error.filename is None else os.fsdecode(error.filename)
        do = f"check the disk and its permissions and run it again: {then}"
        raise OutputError("the system refused it", where=place, found=found, do=do) from error
