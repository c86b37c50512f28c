"""A browser and a machine that note what is asked of them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from animegamer_kiosk.browser import Page
from animegamer_kiosk.ladder import Picture

PAGE, WAITING = "http://127.0.0.1:8080/?kiosk", "http://127.0.0.1:8090/waiting"


class FakeBrowser:
    """Shows what `picture` and `idle_s` say; `done` lists what it was told to do."""

    def __init__(self) -> None:
        self.picture = Picture.MOVES
        self.idle_s: float | None = None
        self.done: list[str] = []

    def look(self) -> tuple[Picture, Page | None]:
        return self.picture, Page(PAGE, self.idle_s, b"")

    def reset(self) -> bool:
        self.done.append("reset")
        self.idle_s = None
        return True

    def attract(self) -> bool:
        self.done.append("attract")
        return True


class FakeCommands:
    """Stands in for systemctl and journalctl. `done` lists the commands that change something."""

    def __init__(self, fail: bool = False) -> None:
        self.done: list[str] = []
        self.fail = fail
        self.stopped: set[str] = set()

    def __call__(self, command: Sequence[str]) -> str:
        line = " ".join(command)
        if self.fail:
            raise subprocess.CalledProcessError(1, line)
        if "--property=ActiveState" in line:
            return "inactive\n" if command[-1] in self.stopped else "active\n"
        if "--property=MainPID" in line:
            return "0\n"
        if command[0] == "journalctl":
            return "2026-11-25T12:00:00 host <b>worker died</b>\n"
        self.done.append(line)
        (self.stopped.add if "stop" in command else self.stopped.discard)(command[-1])
        return ""
