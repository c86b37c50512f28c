"""Who started the server: systemd (`Type=notify`, `WatchdogSec=`, sd_notify(3)), or the process of `serve --parent`."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Mapping

import psutil

from animegamer_rt.errors import ConfigError

log = logging.getLogger(__name__)


class Supervisor:
    """Notifies systemd and watches the parent. A notification that systemd does not accept is only logged.

    parent: id of the process that this one ends with. Raises ConfigError if there is no such process.
    """

    def __init__(self, parent: int | None = None, environment: Mapping[str, str] = os.environ) -> None:
        self.parent = None if parent is None else _find(parent)
        path = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + path[1:] if path.startswith("@") else path
        microseconds = environment.get("WATCHDOG_USEC", "")
        mine = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.watchdog_s = int(microseconds) / 2e6 if microseconds.isdigit() and mine else None
        """How often to call `alive`: half the limit, as sd_watchdog_enabled(3) advises; None: never."""
        self._alive_at = 0.0

    @property
    def parent_ended(self) -> bool:
        """Whether the parent, if there is one, has ended, even if nobody has collected its exit code yet."""
        if self.parent is None:
            return False
        try:
            return not self.parent.is_running() or self.parent.status() == psutil.STATUS_ZOMBIE
        except psutil.Error as error:  # a process of another user's may not be looked at
            return isinstance(error, psutil.NoSuchProcess)

    def ready(self) -> None:
        """Report that turns are played from now on."""
        self._send("READY=1")

    def stopping(self) -> None:
        """Report that no new turns are accepted."""
        self._send("STOPPING=1")

    def alive(self, now: float) -> bool:
        """Report that the server works, when it is time. Returns whether it was. now: seconds, monotonic."""
        if self.watchdog_s is None or now < self._alive_at:
            return False
        self._alive_at = now + self.watchdog_s
        self._send("WATCHDOG=1")
        return True

    def _send(self, state: str) -> None:
        if not self._address or sys.platform == "win32":
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
                channel.setblocking(False)  # the server's loop must not block
                channel.sendto(state.encode(), self._address)
        except OSError as error:
            log.warning("systemd did not accept %s: %s", state, error)


def _find(pid: int) -> psutil.Process:
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess as error:
        do = "give the id of the process that starts the server"
        raise ConfigError("no such parent process", where=f"--parent {pid}", do=do) from error
