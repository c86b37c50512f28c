"""Makes this process behave as one on Windows where Linux differs: `become()`, before the project is imported.

What Windows lacks raises AttributeError or ImportError; what it has besides is there, on top of Linux: `msvcrt` locks,
handles of processes, SIGBREAK (it is SIGUSR1 here). A folder cannot be opened, and a file that is open can be neither
replaced nor deleted.
"""

from __future__ import annotations

import asyncio  # noqa: F401  -- what the project uses is imported first: it is to be this system's
import ctypes
import errno
import os
import shutil
import signal
import sqlite3  # noqa: F401
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable
from typing import Any

import av  # noqa: F401
import numpy  # noqa: F401
import prometheus_client  # noqa: F401
import psutil  # noqa: F401
import rich.console  # noqa: F401
import zmq.asyncio  # noqa: F401

NOT_IN_OS = ("pidfd_open", "sysconf", "sched_getaffinity", "fork", "getuid", "geteuid", "setsid", "killpg", "getpgid")
NOT_IN_OS += ("O_NONBLOCK", "O_DIRECTORY", "O_NOFOLLOW", "fchmod", "mkfifo")
NOT_SIGNALS = ("SIGHUP", "SIGSTOP", "SIGCONT", "SIGALRM", "SIGUSR2", "pthread_sigmask")
WAIT_TIMEOUT = 258


def become() -> None:
    """From now on, in this process. The processes that it starts are ordinary ones."""
    import fcntl

    sys.platform = "win32"
    for name in NOT_IN_OS:
        if hasattr(os, name):
            delattr(os, name)
    signal.SIGBREAK = signal.SIGUSR1  # type: ignore[attr-defined]
    for name in NOT_SIGNALS:
        delattr(signal, name)
    subprocess.CREATE_NEW_PROCESS_GROUP = 0  # type: ignore[attr-defined]
    tempfile.TemporaryFile = tempfile.NamedTemporaryFile  # type: ignore[assignment]  -- as there
    shutil._use_fd_functions = False  # type: ignore[attr-defined]

    def locking(handle: int, mode: int, count: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    sys.modules["msvcrt"] = types.SimpleNamespace(LK_NBLCK=2, locking=locking)  # type: ignore[assignment]
    for name in ("fcntl", "resource", "pwd", "grp", "termios", "tty"):
        sys.modules[name] = None  # type: ignore[assignment]
    kernel = types.SimpleNamespace(OpenProcess=_open_process, WaitForSingleObject=_wait_for)
    ctypes.windll = types.SimpleNamespace(kernel32=kernel)  # type: ignore[attr-defined]
    os.kill = _no_probe(os.kill)
    os.open = _no_folder(os.open)
    os.replace, os.rename = _not_if_open(os.replace, 1), _not_if_open(os.rename, 0, 1)
    os.unlink = os.remove = _not_if_open(os.unlink, 0)


def _open_process(access: int, inherit: bool, pid: int) -> int:
    return pid if os.path.exists(f"/proc/{pid}") else 0


def _wait_for(handle: int, milliseconds: int) -> int:
    try:
        with open(f"/proc/{handle}/stat", encoding="utf-8") as stat:
            ended = stat.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        ended = True
    return 0 if ended else WAIT_TIMEOUT


def _no_probe(system: Callable[[int, int], None]) -> Callable[[int, int], None]:
    def kill(pid: int, number: int) -> None:
        if not number:  # it is CTRL_C_EVENT there, sent to a whole group
            raise AssertionError(f"os.kill({pid}, 0) asks nothing on Windows")
        system(pid, number)

    return kill


def _no_folder(system: Callable[..., int]) -> Callable[..., int]:
    def open(path: Any, *arguments: Any, **options: Any) -> int:
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return system(path, *arguments, **options)

    return open


def _not_if_open(system: Callable[..., None], *places: int) -> Callable[..., None]:
    def change(*arguments: Any, **options: Any) -> None:
        opened = {os.path.realpath(entry.path) for entry in os.scandir("/proc/self/fd")}
        for place in places:
            path = os.path.realpath(arguments[place])
            if path in opened:
                raise PermissionError(errno.EACCES, "The process cannot access the file: it is being used", path)
        system(*arguments, **options)

    return change
