"""Caches on disk the kernels that TensorRT-RTX compiled for this GPU: one file for each engine, named by its hash.

The files only save time at the next start. If one cannot be read or written, a warning is logged and play continues.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from animegamer_rt.bundle.files import make_folder, write_file
from animegamer_rt.errors import OutputError

FOLDER = "ANIMEGAMER_CACHE"
"""Environment variable: the folder of the files (default: animegamer-rt in the user's cache folder)."""

log = logging.getLogger(__name__)


def load(engine_sha256: str) -> bytes | None:
    """The kernels that an earlier start saved for an engine; None if there are none or they cannot be read."""
    path = _path(engine_sha256)
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        log.warning("%s cannot be read, so kernels are compiled again: %s", path, error.strerror)
        return None


def save(engine_sha256: str, content: bytes) -> bool:
    """Writes the complete file or nothing. False, with a warning, if it cannot be written."""
    path = _path(engine_sha256)
    try:
        make_folder(path.parent)
        write_file(path, content)
    except OutputError as error:
        log.warning(
            "%s cannot be written (%s): the next start compiles the GPU's kernels again; "
            "free disk space, or set %s to a writable folder",
            path,
            error.found,
            FOLDER,
        )
        return False
    return True


def _path(engine_sha256: str) -> Path:
    return cache_folder() / f"{engine_sha256[:32]}.cache"


def cache_folder() -> Path:
    """The folder of compiled kernels."""
    configured = os.environ.get(FOLDER)
    if configured:
        return Path(configured)
    root = os.environ.get("LOCALAPPDATA") if os.name == "nt" else os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "animegamer-rt"
