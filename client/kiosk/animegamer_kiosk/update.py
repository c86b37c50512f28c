"""`kiosk update`: switches to another environment, and back to the previous one if that does not play.

Run by the version in use, so that a new one that cannot even start is undone too.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from animegamer_rt.errors import AnimeGamerError, ConfigError, ServerError
from animegamer_rt.serving.store import FILE, back_up

from .config import KioskConfig
from .kit import UNITS, USER, under
from .versions import Versions

SERVER = UNITS[0]
HOME = Path("/var/lib/animegamer")
BACKUP = Path("/var/lib/animegamer-kiosk/games-before-update")
SET_ASIDE = Path("/var/lib/animegamer-kiosk/games-of-newer-version")
"""Games in a format that the previous version cannot read, kept after going back to it."""
COMMAND_S = 3600.0
READY_S, PAUSE_S = 900.0, 2.0
"""Longest wait for a starting server, more than the unit's TimeoutStartSec; and between checks."""
MAX_RESTARTS = 3
OUTPUT_CHARACTERS = 400

Run = Callable[[Sequence[str]], str]


@dataclass(frozen=True, slots=True)
class Step:
    """The text to print, and the function to run."""

    text: str
    do: Callable[[], object]


def run_program(command: Sequence[str]) -> str:
    """A command's output. Raises ServerError with the end of its output if it fails or hangs."""
    pipe, hide = subprocess.PIPE, subprocess.DEVNULL
    try:
        done = subprocess.run(
            command, stdin=hide, stdout=pipe, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=COMMAND_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServerError(f"`{' '.join(command)}` could not be run", found=str(error)) from error
    if done.returncode:
        output = " ".join(done.stdout.split())[-OUTPUT_CHARACTERS:]
        raise ServerError(f"`{' '.join(command)}` ended with code {done.returncode}", found=output or "no output")
    return done.stdout


class Updater:
    """Updates of one kiosk.

    ready: whether the server is ready. turn: plays one and returns the server's name and version. run: runs a command.
    """

    def __init__(
        self,
        config: KioskConfig,
        ready: Callable[[], bool],
        turn: Callable[[], str],
        run: Run = run_program,
        root: Path = Path("/"),
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._config, self._ready, self._turn, self._run, self._pause = config, ready, turn, run, pause
        self.versions = Versions(root)
        paths = (HOME / "server" / FILE, BACKUP, SET_ASIDE)
        self._games, self._backup, self._aside = (under(root, path) for path in paths)

    def steps(self, new: Path) -> Iterator[Step]:
        """The steps of an update to the environment `new`, in order. Raises ConfigError if it is not suitable."""
        if not (new / "bin/animegamer-rt").exists():
            do = "create it first (docs/KIOSK.md, Updates)"
            raise ConfigError("not an environment with animegamer-rt", where=new, expected="bin/animegamer-rt", do=do)
        if self.versions.current in (None, new):
            expected = "an environment other than the one in use, on a machine where a kiosk is installed"
            raise ConfigError("nothing to update", where=self.versions.folder, found=new, expected=expected)
        program = str(new / "bin/animegamer-rt")
        test = ("--bundle", self._config.bundle, "--device", self._config.device, "--out", str(HOME / "selftest.json"))
        yield self._command("systemctl", "stop", SERVER)
        yield self._command("runuser", "-u", USER, "--", "env", f"HOME={HOME}", program, "selftest", *test)
        yield Step(f"copy the games to {self._backup}", self._back_up)
        yield self._command(program, "kiosk", "install", "--yes")
        yield Step(
            f"wait until it is ready, {READY_S:.0f} s at most, and play a turn", lambda: self._await_turn(program)
        )

    def update(self, new: Path, say: Callable[[str], None] = print) -> bool:
        """Run the steps; returns whether the new version plays. If a step fails, all are undone."""
        steps, old = list(self.steps(new)), self.versions.current
        assert old is not None
        try:
            for step in steps:
                say(step.text)
                step.do()
        except BaseException as error:
            say(f"failed: {error.text if isinstance(error, AnimeGamerError) else type(error).__name__}; undoing")
            self.go_back(old, say)
            if isinstance(error, AnimeGamerError):
                return False
            raise
        return True

    def back_steps(self, old: Path) -> Iterator[Step]:
        """The steps for going back to an environment that has played here, in order."""
        yield self._command("systemctl", "stop", SERVER)
        yield Step(f"restore the games of {self._backup}, if it cannot read the newer ones", self._restore)
        yield self._command(str(old / "bin/animegamer-rt"), "kiosk", "install", "--yes")

    def go_back(self, old: Path, say: Callable[[str], None] = print) -> bool:
        """Run these steps, later ones even if one fails; returns whether all worked."""
        failed = False
        for step in self.back_steps(old):
            say(step.text)
            try:
                step.do()
            except (AnimeGamerError, OSError) as error:
                failed = True
                say(f"failed: {error}")
        return not failed

    def _await_turn(self, program: str) -> None:
        end = time.monotonic() + READY_S
        while not self._ready():
            restarts = self._run(("systemctl", "show", "--property=NRestarts", "--value", SERVER)).strip()
            if restarts.isdigit() and int(restarts) >= MAX_RESTARTS:
                raise ServerError("the server keeps restarting", where=SERVER, found=f"{restarts} restarts")
            if time.monotonic() > end:
                raise ServerError("the server did not become ready", where=SERVER, expected=f"{READY_S:.0f} s at most")
            self._pause(PAUSE_S)
        expected = self._run((program, "--version")).strip()
        if (found := self._turn()) != expected:
            raise ServerError("another version is running", where=SERVER, found=found, expected=expected)

    def _back_up(self) -> None:
        shutil.rmtree(self._backup, ignore_errors=True)
        shutil.rmtree(self._aside, ignore_errors=True)
        if self._games.exists():
            back_up(self._games.parent, self._backup)

    def _restore(self) -> None:
        """Restores the games from before the update, if the newer version has changed their file's format."""
        copy, games = self._backup / FILE, self._games
        if not copy.exists() or _schema(games) == _schema(copy):
            return
        self._aside.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in games.parent.glob(FILE + "*"):
            shutil.move(path, self._aside / path.name)
        shutil.copy(copy, games)
        games.chmod(0o600)
        folder = games.parent.stat()
        os.chown(games, folder.st_uid, folder.st_gid)

    def _command(self, *command: str) -> Step:
        return Step(f"run   {' '.join(command)}", lambda: self._run(command))


def _schema(path: Path) -> int | None:
    """The version of a file's tables; None if it is not a file of games."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=rw", uri=True)) as games:
            [[version]] = games.execute("SELECT schema_version FROM store")
            return int(version)
    except (sqlite3.Error, ValueError):
        return None
