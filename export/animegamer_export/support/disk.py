"""Reports a disk that fills up during a write."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from animegamer_rt.errors import OutputError

DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def disk_full_error(where: Path, then: str) -> Iterator[None]:
    """Converts an OSError inside the block to an OutputError; `then` says what another run will do."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL_ERRNOS:
            do = f"free some space and run it again: {then}"
            raise OutputError("the disk is full", where=where, do=do) from error
        found = (error.strerror or str(error)).lower()
        place = where if error.filename is None else os.fsdecode(error.filename)
        do = f"check the disk and its permissions and run it again: {then}"
        raise OutputError("write failed", where=place, found=found, do=do) from error
