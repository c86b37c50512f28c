"""Turns any failure of a command into one sentence and an exit code.

Errors not listed here are bugs of this program, and keep their traceback.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys

from .errors import INTERRUPTED, USER_ERROR, AnimeGamerError, BackendError, ConfigError, OutputError
from .untrusted import plain

NO_READER = 1
_FAILED_WRITES = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EFBIG, errno.EIO)
_FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))


def report(error: BaseException) -> int:
    """Print what happened to stderr, if possible; returns the exit code. Raises the error again if it is a bug.

    1: the reader of stdout is gone, which needs no message. 2: whatever a user can fix. 75: temporary failures, such as
    a port in use. 130: Ctrl-C.
    """
    if isinstance(error, KeyboardInterrupt) or _interrupted_import(error):
        _say("stopped")
        return INTERRUPTED
    if isinstance(error, OSError) and error.filename is None:
        if isinstance(error, BrokenPipeError):
            _mute()
            return NO_READER
        # Writes to files name the file; what is left is stdout, which may have lost buffered output.
        if (lost := output_error()) is not None or error.errno in _FAILED_WRITES:
            return output_lost(lost or error)
    said = describe(error)
    if said is None:
        raise error
    _say(f"error: {plain(said, lines=True)}")
    if (lost := output_error()) is not None:  # output printed before the error must not fail again at exit
        _mute()
    return error.exit_code if isinstance(error, AnimeGamerError) else USER_ERROR


def ready_streams() -> None:
    """Replace closed standard streams by empty ones, and characters a stream cannot encode by `?`."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure") and not stream.closed:
            stream.reconfigure(errors="replace")


def describe(error: BaseException) -> str | None:
    """What happened and what to do, in one sentence; None for a bug of this program."""
    if isinstance(error, AnimeGamerError):
        return str(error)
    if isinstance(error, MemoryError):
        return str(BackendError("out of memory", do="close other programs, or use a smaller bundle"))
    if isinstance(error, ImportError):
        do = "free memory if it is short; otherwise reinstall it (docs/INSTALL.md)"
        return str(BackendError("a library cannot be loaded", found=_line(error), do=do))
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        do = "free memory, or raise the limit on processes (ulimit -u)"
        return str(BackendError("the system refused to start another thread", do=do))
    if isinstance(error, RuntimeError) and "home directory" in str(error):  # pathlib's wording
        return str(ConfigError("this user has no home folder", do="set HOME to a writable folder"))
    if isinstance(error, OSError):
        return str(_system_error(error))
    return None


def output_error() -> OSError | None:
    """The error of flushing stdout; None if stdout works. Prints nothing itself."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return error
    except ValueError:  # it is closed
        return None
    return None


def output_lost(error: OSError) -> int:
    """Report that stdout cannot be written, unless its reader closed it, as `head` does; returns the exit code."""
    _mute()
    if isinstance(error, BrokenPipeError):
        return NO_READER
    found, do = (error.strerror or str(error)).lower(), "free disk space, or redirect it elsewhere"
    _say(f"error: {OutputError('the output cannot be written', found=found, do=do)}")
    return USER_ERROR


def _system_error(error: OSError) -> OutputError:
    found = (error.strerror or _line(error)).lower()
    where = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else None
    if error.errno in _FULL:
        return OutputError("the disk is full", where=where, do="free disk space and run it again")
    if where is None and (deleted := current_folder_error()):
        return deleted
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return OutputError("too many files are open", where=where, do="close other programs, or raise ulimit -n")
    do = "check the name and its permissions, or choose another place"
    return OutputError("the operation failed", where=where, found=found, do=do)


def _interrupted_import(error: BaseException) -> bool:
    """Whether Ctrl-C interrupted the loading of a library, which then only reports that it cannot be loaded."""
    if not isinstance(error, ImportError):
        return False
    causes: list[BaseException | None] = [error]
    while (last := causes[-1]) is not None and not isinstance(last, KeyboardInterrupt):
        causes.append(last.__cause__ or last.__context__)
    return last is not None


def current_folder_error() -> OutputError | None:
    """The error to report where the current folder was deleted, so that no relative path leads anywhere."""
    try:
        os.getcwd()
    except OSError as error:
        found = (error.strerror or "").lower()
        return OutputError("the current folder was deleted", found=found, do="change to another folder")
    return None


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # a closed terminal takes both streams with it
        print(text, file=sys.stderr)


def _mute() -> None:
    """Send stdout to the null device: its buffered output would fail again at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
