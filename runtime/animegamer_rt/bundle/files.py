"""Files and folders: atomic writes, free space, locks, hashes, the checkout's root.

A write either succeeds completely, or raises OutputError and changes nothing.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from animegamer_rt.errors import OutputError
from animegamer_rt.failures import current_folder_error

LFS_POINTER = b"version https://git-lfs.github.com/spec/"
"""How the small file begins that git leaves in place of one that Git LFS has not downloaded."""
LOCK = ".lock"
"""The locked file inside a folder, only on Windows."""
REPLACE_SECONDS = 2.0
OTHER_FOLDER = "choose another folder, or free disk space there"
_DO = {
    **dict.fromkeys(
        (errno.EEXIST, errno.ENOTDIR, errno.EISDIR), "a file and a folder cannot share a name: choose another"
    ),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "check its permissions, or choose another folder"),
    errno.EFBIG: "choose another disk: FAT's files have at most 4 GiB; or raise the limit (ulimit -f)",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOENT: "make its folder first, or correct the name",
}
"""What to do about a write that failed."""
SPARE_BYTES = 64 * 2**20
"""Reserve for the file system itself, and for small files that were not counted."""


def write_file(path: Path, content: bytes) -> None:
    """Atomically replace a file: readers see the old content or the new. Raises OutputError."""
    if path.name in ("", ".", ".."):
        raise OutputError("not a file name", where=path, found="a folder", do="give a file, such as result.json")
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(content)
        replace(part, path)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        remove(part)


def replace(part: Path, path: Path) -> None:
    """os.replace, again for REPLACE_SECONDS where Windows refuses it: scanners and indexers open new files briefly."""
    give_up = time.monotonic() + (REPLACE_SECONDS if sys.platform == "win32" else 0)
    while True:
        try:
            os.replace(part, path)
            return
        except PermissionError:
            if time.monotonic() >= give_up:
                raise
            time.sleep(0.05)


def read_bounded(path: Path, limit: int) -> bytes:
    """The content of a regular file of at most `limit` bytes.

    Raises OSError with the file's name, also for a larger file, a folder, a pipe or a device, without blocking.
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except ValueError as error:  # a NUL in the name
        raise OSError(errno.EINVAL, str(error), str(path)) from error
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(path))
        found = bytearray()
        while len(found) <= limit and (block := os.read(handle, min(1 << 20, limit + 1 - len(found)))):
            found += block
    finally:
        os.close(handle)
    if len(found) > limit:
        raise OSError(errno.EFBIG, f"Larger than {limit} bytes", str(path))
    return bytes(found)


def remove(path: Path) -> None:
    """Delete a file if it exists. Errors are ignored: the failed write has already been reported."""
    with suppress(OSError):
        path.unlink()


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, and check that it is writable. Raises OutputError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0")
    except OSError as error:
        raise write_error(folder, error) from error


def free_bytes(folder: Path) -> int:
    """Free space on the disk of a folder, which need not exist. Raises OutputError."""
    place = folder.absolute()
    while not os.path.exists(place):
        place = place.parent
    try:
        return shutil.disk_usage(place).free
    except OSError as error:
        raise write_error(folder, error) from error


def require_space(folder: Path, needed: int, do: str) -> None:
    """Raises OutputError with the advice `do` if the disk of `folder` has less than `needed` bytes and SPARE_BYTES."""
    free = free_bytes(folder)
    if needed + SPARE_BYTES > free:
        raise OutputError(
            "not enough space on the disk",
            where=folder,
            found=f"{free / 1e9:.1f} GB free",
            expected=f"{(needed + SPARE_BYTES) / 1e9:.1f} GB",
            do=do,
        )


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock a folder against other processes that call this. Raises OutputError if one of them holds it.

    The lock ends with the process, for whatever reason. Windows cannot lock folders: there, a file inside is locked,
    and deleted at the end. filelock would leave its file in every folder, even on Linux.
    """
    try:
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT) if sys.platform == "win32" else os.open(folder, 0)
    except OSError as error:
        raise write_error(folder, error) from error
    try:
        if not _lock(handle):
            do = "wait until it has finished, or choose another folder"
            raise OutputError("another process is writing here", where=folder, do=do)
        yield
    finally:
        os.close(handle)
        if sys.platform == "win32":
            remove(folder / LOCK)


def _lock(handle: int) -> bool:
    """False if another process holds the lock. True on a file system without locks."""
    if sys.platform == "win32":
        import msvcrt

        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def write_error(path: Path, error: OSError) -> OutputError:
    """The OutputError for a file or folder that cannot be written."""
    if not path.is_absolute() and (deleted := current_folder_error()):
        return deleted
    found = (error.strerror or str(error)).lower()
    return OutputError("cannot be written", where=path, found=found, do=_DO.get(error.errno or 0, OTHER_FOLDER))


def sha256(path: Path) -> str:
    """sha256 of a file in lower-case hex, read a megabyte at a time."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def user_data_folder() -> Path:
    """This program's folder in the user's data folder, outside any checkout; it need not exist."""
    home = Path.home()
    if sys.platform == "win32":
        data = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        data = home / "Library" / "Application Support"
    else:
        data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    return data / "animegamer-rt"


def checkout_folder() -> Path | None:
    """The root of the checkout that contains this module; None for an installed package."""
    for folder in Path(__file__).resolve().parents:
        project = folder / "pyproject.toml"
        if project.is_file():
            return folder if 'name = "animegamer-rt"' in project.read_text(encoding="utf-8") else None
    return None
