"""Tells systemd that the server is ready, stopping, and alive (`Type=notify`, `WatchdogSec=`).

Knows systemd's datagram socket (sd_notify(3)); nothing of turns. Without NOTIFY_SOCKET it says nothing.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

log = logging.getLogger(__name__)


class ServiceManager:
    """The service manager that started this process, if one did. A message that it does not take is logged, no more."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        path = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + path[1:] if path.startswith("@") else path
        microseconds = environment.get("WATCHDOG_USEC", "")
        mine = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        # Half the limit, as sd_watchdog_enabled(3) advises.
        self._every_s = int(microseconds) / 2e6 if microseconds.isdigit() and mine else None
        self._alive_at = 0.0

    def ready(self) -> None:
        """Turns are played from now on."""
        self._send("READY=1")

    def stopping(self) -> None:
        """No new turns are taken."""
        self._send("STOPPING=1")

    def alive(self, now: float) -> bool:
        """Say that the server works, when it is time to. Returns whether it was; now: seconds, monotonic."""
        if self._every_s is None or now < self._alive_at:
            return False
        self._alive_at = now + self._every_s
        self._send("WATCHDOG=1")
        return True

    def _send(self, state: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
                channel.setblocking(False)  # the server's loop waits for nobody
                channel.sendto(state.encode(), self._address)
        except (OSError, AttributeError) as error:  # no AF_UNIX: Windows
            log.warning("the service manager did not take %s: %s", state, error)
