"""What the library compiled for this GPU, on disk for the next start: a file an engine, named by the engine's hash.

Knows files, nothing of what is in them. They save time and are never needed: if one cannot be read or written, the log
says so, and the game goes on.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

FOLDER = "ANIMEGAMER_CACHE"
"""Environment variable: where they are kept (default: animegamer-rt in the user's cache folder)."""

log = logging.getLogger(__name__)


def recall(engine_sha256: str) -> bytes | None:
    """What an earlier start has kept for an engine, if it can be read."""
    path = _path(engine_sha256)
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        log.warning("%s cannot be read, so it is compiled again: %s", path, error.strerror)
        return None


def keep(engine_sha256: str, content: bytes) -> bool:
    """Writes it whole or not at all; False when it could not be written, which the log says."""
    path = _path(engine_sha256)
    part = path.with_suffix(".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)
        part.replace(path)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        log.warning(
            "%s cannot be written (%s): what was compiled for this GPU is compiled again at the next start; "
            "make room, or set %s to a folder that can be written",
            path,
            why,
            FOLDER,
        )
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        return False
    return True


def _path(engine_sha256: str) -> Path:
    return _folder() / f"{engine_sha256[:32]}.cache"


def _folder() -> Path:
    configured = os.environ.get(FOLDER)
    if configured:
        return Path(configured)
    root = os.environ.get("LOCALAPPDATA") if os.name == "nt" else os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "animegamer-rt"
