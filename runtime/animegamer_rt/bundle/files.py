"""Files and folders that are written: each appears whole or not at all, or an error says why not.

Knows paths and bytes; nothing of what they mean.
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
    """Make a folder, with those above it, that can be written to. Raises OutputError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0")
    except OSError as error:
        raise write_error(folder, error) from error


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """While it is open no other process that asks for the same gets it. Raises OutputError when another one has it.

    It ends with the process, however that ends. Windows locks no folders: there all get it.
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
    """The error for a file or folder that the system does not let us write."""
    return OutputError(
        "cannot be written",
        where=path,
        found=(error.strerror or str(error)).lower(),
        do="choose another folder, or make room there",
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
