"""Files and folders: atomic writes, locks, hashes, the checkout's root.

Knows paths and bytes; nothing of their meaning. A write succeeds whole, or raises OutputError and changes nothing.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from animegamer_rt.errors import OutputError


def write_file(path: Path, content: bytes) -> None:
    """Replace a file by one of this content in one step: a reader sees the old or the new. Raises OutputError."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(content)
        os.replace(part, path)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        remove(part)


def remove(path: Path) -> None:
    """Delete a file if it exists. Errors are ignored: the failed write has already been reported."""
    with suppress(OSError):
        path.unlink()


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, and check that it can be written to. Raises OutputError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0")
    except OSError as error:
        raise write_error(folder, error) from error


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock a folder against other processes that call this. Raises OutputError if one of them holds it.

    The lock ends with the process, however it ends. On Windows, which cannot lock folders, this does nothing.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            do = "wait until it has ended, or choose another folder"
            raise OutputError("another process is writing here", where=folder, do=do) from error
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(handle)


def write_error(path: Path, error: OSError) -> OutputError:
    """The OutputError for a file or folder that cannot be written."""
    return OutputError(
        "cannot be written",
        where=path,
        found=(error.strerror or str(error)).lower(),
        do="choose another folder, or free some space there",
    )


def sha256(path: Path) -> str:
    """sha256 of a file in lower-case hex, read a megabyte at a time."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def checkout_folder() -> Path | None:
    """The root of the checkout that this module lies in; None for an installed package."""
    for folder in Path(__file__).resolve().parents:
        project = folder / "pyproject.toml"
        if project.is_file():
            return folder if 'name = "animegamer-rt"' in project.read_text(encoding="utf-8") else None
    return None
