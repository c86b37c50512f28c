"""The machine under the kiosk: its units, the gateway's process, the journal, the temperature."""

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
"""Lower case matches both cases."""

Run = Callable[[Sequence[str]], str]
log = logging.getLogger(__name__)


def run_command(command: Sequence[str]) -> str:
    """A command's output. Raises OSError, with what the command said, or subprocess.SubprocessError if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout


class Machine:
    """The kiosk's parts. run: runs a command and returns its output."""

    def __init__(self, run: Run = run_command) -> None:
        self._run = run

    def act(self, action: Action) -> bool:
        """Carry out the ladder's action; returns whether that worked. A failure is logged, and the ladder continues."""
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
        """Reboot the machine; returns whether systemd accepted it."""
        try:
            self._systemctl("reboot")
        except (OSError, subprocess.SubprocessError) as error:
            log.error("reboot: %s", error)
            return False
        return True

    def states(self) -> dict[str, str]:
        """Each unit and its state, as systemd names it; `unknown` if it does not respond."""
        found = {}
        for unit in UNITS:
            try:
                found[unit] = self._systemctl("show", "--property=ActiveState", "--value", unit).strip()
            except (OSError, subprocess.SubprocessError):
                found[unit] = "unknown"
        return found

    def errors(self) -> list[str]:
        """The units' latest warnings and errors, newest last; empty if the journal cannot be read.

        Found by words, as everything that a program prints has the same priority in the journal.
        """
        units = [word for unit in UNITS for word in ("--unit", unit)]
        command = ["journalctl", *units, "--lines", str(LOG_LINES), "--grep", WRONG, "--output", "short-iso"]
        try:
            return self._run([*command, "--no-pager", "--quiet"]).splitlines()[-LOG_LINES:]
        except (OSError, subprocess.SubprocessError):
            return []

    def temperature_c(self) -> float | None:
        """The hottest sensor, in degrees Celsius; None if there is none."""
        found = psutil.sensors_temperatures() if hasattr(psutil, "sensors_temperatures") else {}
        return max((float(one.current) for sensors in found.values() for one in sensors), default=None)

    def _end_gateway(self) -> None:
        """Kill the gateway; the server restarts it at once, and the games continue."""
        number = self._systemctl("show", "--property=MainPID", "--value", SERVER).strip()
        if not number.isdigit() or number == "0":
            raise OSError("the server is not running")
        for process in psutil.Process(int(number)).children():
            if GATEWAY in process.cmdline():
                process.kill()

    def _systemctl(self, *words: str) -> str:
        return self._run(["systemctl", *words])
