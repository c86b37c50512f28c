"""Writes a bundle to a hidden sibling of its folder, which is renamed when complete: no half bundle is visible."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from animegamer_rt.bundle.claims import claim_folder
from animegamer_rt.bundle.files import (
    LOCK,
    lock_folder,
    make_folder,
    read_bounded,
    replace,
    require_space,
    write_error,
    write_file,
)
from animegamer_rt.errors import BundleError, OutputError

MARK, MARKED = "bundle.unfinished", b"animegamer-rt writes a bundle here\n"
"""The file that marks the hidden folder, and its content."""


def new_folder(out: Path) -> Path:
    """The folder for a new bundle, where links lead. Raises BundleError if `new_bundle` could not write it."""
    out = Path(os.path.realpath(out))
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BundleError("neither a new nor an empty folder", where=out, do="choose a new one with --out")
    if os.path.ismount(out):
        raise BundleError("a mounted disk cannot be replaced", where=out, do=f"write to {out / 'bundle'}")
    return out


@contextmanager
def new_bundle(out: Path, size: int) -> Iterator[Path]:
    """Yields an empty folder for about `size` bytes, and renames it to `out` at the end of the block.

    Deletes what a killed run has left, and everything if the block raises. Raises BundleError if `out` is neither new
    nor empty, or is a mounted disk, which no folder can be renamed to; OutputError if the disk is too small or fills
    up, if another process writes to `out`, or if the hidden folder holds files without the mark.
    """
    out = new_folder(out)
    require_space(out, size, "choose another --out, or free some space")
    work = out.with_name(f".{out.name}.unfinished")
    make_folder(work)
    ours = False
    try:
        with lock_folder(work):
            claim_folder(work, "a bundle under way", _own_files, do="move it, or choose another --out")
            ours = True
            with write_errors(out):
                write_file(work / MARK, MARKED)
                for path in work.iterdir():
                    if path.name not in (MARK, LOCK):
                        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
                yield work
                (work / MARK).unlink()
        _move_into_place(work, out)  # without the lock: Windows renames no folder that has an open file
    finally:
        if ours:
            shutil.rmtree(work, ignore_errors=True)


@contextmanager
def write_errors(out: Path) -> Iterator[None]:
    """Converts an OSError inside the block, such as a full disk, to an OutputError."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise OutputError("the disk is full", where=out, do="free some space and run it again") from error
        raise write_error(out if error.filename is None else Path(os.fsdecode(error.filename)), error) from error


def _own_files(work: Path) -> list[str] | None:
    """None for a folder without the mark. A power cut while it is written leaves only its temporary file."""
    with suppress(OSError):
        if read_bounded(work / MARK, len(MARKED)) == MARKED:
            return []
    return [] if {path.name for path in work.iterdir()} - {LOCK} == {f".{MARK}.part"} else None


def _move_into_place(work: Path, out: Path) -> None:
    try:
        if out.exists():
            out.rmdir()  # Empty; not every system can replace a folder.
        replace(work, out)
    except OSError as error:
        raise write_error(out, error) from error
