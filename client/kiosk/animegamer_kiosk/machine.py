"""The machine under the kiosk: its units, the gateway's process, its log, its temperature.

Knows systemctl and journalctl; nothing of pictures.
"""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable, Sequence

import psutil

from .kit import UNITS
from .ladder import Action

SERVER, _, BROWSER = UNITS
TIMEOUT_S = 20.0
GATEWAY = "animegamer_rt.serving.gateway"
LOG_LINES = 30
WRONG = "warning|error|fail|killed|exited|timed out"
"""Lower case finds both cases."""

Run = Callable[[Sequence[str]], str]
log = logging.getLogger(__name__)


def run_command(command: Sequence[str]) -> str:
    """What a command prints. Raises OSError or subprocess.SubprocessError where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S, check=True)
    return done.stdout


class Machine:
    """The kiosk's parts. run: runs a command and returns what it printed."""

    def __init__(self, run: Run = run_command) -> None:
        self._run = run

    def act(self, action: Action) -> bool:
        """Do what the ladder says; returns whether it was done. A failure is logged: the ladder goes on."""
        steps: dict[Action, Callable[[], object]] = {
            Action.BROWSER: lambda: self._systemctl("--no-block", "restart", BROWSER),
            Action.GATEWAY: self._end_gateway,
            Action.SERVER: lambda: self._systemctl("--no-block", "restart", SERVER),
            Action.SCREEN_ON: lambda: self._systemctl("--no-block", "start", BROWSER),
            Action.SCREEN_OFF: lambda: self._systemctl("--no-block", "stop", BROWSER),
        }
        if action is Action.NOTHING:
            return True
        try:
            steps[action]()
        except (OSError, subprocess.SubprocessError, psutil.Error) as error:
            log.error("%s: %s", action.value, error)
            return False
        log.warning("%s: done", action.value)
        return True

    def reboot(self) -> bool:
        """Start the whole machine again; returns whether systemd took it."""
        try:
            self._systemctl("reboot")
        except (OSError, subprocess.SubprocessError) as error:
            log.error("reboot: %s", error)
            return False
        return True

    def states(self) -> dict[str, str]:
        """Each unit and its state, as systemd names it; `unknown` where it does not answer."""
        found = {}
        for unit in UNITS:
            try:
                found[unit] = self._systemctl("show", "--property=ActiveState", "--value", unit).strip()
            except (OSError, subprocess.SubprocessError):
                found[unit] = "unknown"
        return found

    def errors(self) -> list[str]:
        """The last warnings and errors of the units, newest last; empty where the journal cannot be read.

        They are found by their words: to the journal, all that a program prints is of one priority.
        """
        units = [word for unit in UNITS for word in ("--unit", unit)]
        command = ["journalctl", *units, "--lines", str(LOG_LINES), "--grep", WRONG, "--output", "short-iso"]
        try:
            return self._run([*command, "--no-pager", "--quiet"]).splitlines()[-LOG_LINES:]
        except (OSError, subprocess.SubprocessError):
            return []

    def temperature_c(self) -> float | None:
        """The hottest sensor, in degrees Celsius; None where there is none."""
        found = psutil.sensors_temperatures() if hasattr(psutil, "sensors_temperatures") else {}
        return max((float(one.current) for sensors in found.values() for one in sensors), default=None)

    def _end_gateway(self) -> None:
        """Kill the gateway; the server starts another one at once, and the games go on."""
        number = self._systemctl("show", "--property=MainPID", "--value", SERVER).strip()
        if not number.isdigit() or number == "0":
            raise OSError("the server does not run")
        for process in psutil.Process(int(number)).children():
            if GATEWAY in process.cmdline():
                process.kill()

    def _systemctl(self, *words: str) -> str:
        return self._run(["systemctl", *words])
