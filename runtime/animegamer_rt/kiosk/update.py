"""Installs a version beside the one in use, tries it, switches to it, and switches back if it does not play.

Knows the order of the steps and how each is undone; commands are run, and turns played, by what it is given.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from animegamer_rt.bundle.files import lock_folder
from animegamer_rt.errors import AnimeGamerError, ConfigError, ServerError
from animegamer_rt.serving.store import FILE, back_up

from .config import KioskConfig
from .kit import PROVE_TIMER, UNITS, USER, read_receipt, under
from .update_record import CHECKS, RECORD, RUNNING, Phase, UpdateRecord, read_record, write_record
from .versions import Versions, Wheel, installed_extras

SERVER = UNITS[0]
HOME = Path("/var/lib/animegamer")
BACKUP = Path("/var/lib/animegamer-kiosk/games-before-update")
SET_ASIDE = Path("/var/lib/animegamer-kiosk/games-of-newer-version")
"""Games that a version wrote in a newer form before it was taken back."""
COMMAND_S = 3600.0
READY_S, PAUSE_S = 900.0, 2.0
"""Longest wait for a server that starts: the unit's TimeoutStartSec, and some more."""
MAX_RESTARTS = 3
OUTPUT_CHARACTERS = 400

Run = Callable[[Sequence[str]], str]


@dataclass(frozen=True, slots=True)
class Step:
    """What is done, as it is printed, and the doing."""

    text: str
    do: Callable[[], object]


def run_program(command: Sequence[str]) -> str:
    """What a command prints. Raises ServerError with the end of what it printed where it fails or hangs."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=COMMAND_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServerError(f"`{' '.join(command)}` could not be run", found=str(error)) from error
    if done.returncode:
        said = " ".join(done.stdout.split())[-OUTPUT_CHARACTERS:]
        raise ServerError(f"`{' '.join(command)}` ended with code {done.returncode}", found=said or "no output")
    return done.stdout


class Updater:
    """The updates of one kiosk. run: a command. ready: whether the server is. turn: plays one, names the server."""

    def __init__(
        self,
        config: KioskConfig,
        ready: Callable[[], bool],
        turn: Callable[[], str],
        run: Run = run_program,
        root: Path = Path("/"),
        say: Callable[[str], None] = print,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._config, self._ready, self._turn, self._run, self._root = config, ready, turn, run, root
        self._say, self._pause = say, pause
        self.versions = Versions(root)
        self._games, self._backup, self._aside = (
            under(root, path) for path in (HOME / "server" / FILE, BACKUP, SET_ASIDE)
        )

    def record(self) -> UpdateRecord | None:
        """What became of the last update."""
        return read_record(under(self._root, RECORD))

    def steps(self, wheel: Wheel) -> Iterator[Step]:
        """All that an update does, in order. They are computed from what lies on the disk now."""
        old, new = self._old(), self.versions.new_folder(wheel.version)
        [packages] = [path.relative_to(old) for path in old.glob("lib/python*/site-packages")]
        extras = ",".join(installed_extras(old / packages))
        python, program = str(new / "bin/python"), str(new / "bin/animegamer-rt")
        copy = "-al" if _same_disk(old, self.versions.folder) else "-a"
        pip = (python, "-m", "pip", "--disable-pip-version-check", "--no-input")
        find = ("--no-index", "--find-links", str(wheel.path.parent), "--root-user-action", "ignore")
        test = ("--bundle", self._config.bundle, "--device", self._config.device, "--out", str(HOME / "selftest.json"))
        yield Step(
            f"check the room on the disk for {wheel.path}", lambda: self.versions.check_space(wheel, self._games)
        )
        yield Step(f"keep {old} to go back to, and no other version", lambda: self._keep(old))
        yield self._command("systemctl", "stop", PROVE_TIMER)
        yield self._command("systemctl", "enable", PROVE_TIMER)
        yield self._command(str(old / "bin/python"), "-m", "venv", "--without-pip", str(new))
        yield self._command("cp", copy, f"{old / packages}/.", f"{new / packages}/")
        yield self._command(*pip, "uninstall", "--yes", "--root-user-action", "ignore", "animegamer-rt")
        yield self._command(*pip, "install", *find, f"{wheel.path}[{extras}]")
        yield self._command(program, "--version")
        yield self._command("systemctl", "stop", SERVER)
        yield self._command("runuser", "-u", USER, "--", "env", f"HOME={HOME}", program, "selftest", *test)
        yield Step(f"copy the games to {self._backup}", self._back_up)
        yield Step(f"use {new}", lambda: self._switch(old, new, wheel.version))
        yield self._command(program, "kiosk", "install", "--yes")
        yield Step(
            f"wait until the server is ready, at most {READY_S:.0f} s, and play a turn; "
            f"else use {old} again, with its own `kiosk install`",
            lambda: self._await_turn(new),
        )
        yield self._command("systemctl", "start", PROVE_TIMER)
        yield Step(
            f"keep {old} until the server was found ready {CHECKS} times, every ten minutes; then delete it", _no
        )

    def update(self, wheel: Wheel) -> UpdateRecord:
        """Do all steps, or undo those that were done; returns what became of it.

        Raises ConfigError before anything is changed, OutputError where another update runs.
        """
        old = self._old()
        with self._lock():
            self._write(UpdateRecord(Phase.INSTALLING, wheel.version, _version_of(old), "", ""))
            try:
                for step in self.steps(wheel):
                    self._say(step.text)
                    step.do()
            except AnimeGamerError as error:
                return self._undo(error.text)
            except BaseException as error:
                self._undo(f"it was stopped ({type(error).__name__})")
                raise
            return self._change(phase=Phase.TRIAL)

    def check(self) -> UpdateRecord | None:
        """Go on with an update that is on trial, or was interrupted by a power cut; None where there is neither."""
        record = self.record()
        if record is None or record.phase not in (*RUNNING, Phase.TRIAL):
            return None
        with self._lock():
            if record.phase is Phase.INSTALLING:
                return self._undo("it was interrupted")
            try:
                if record.phase is Phase.STARTING:
                    self._await_turn(Path(record.folder))
                    return self._change(phase=Phase.TRIAL)
                if self._shown("ActiveState") == "inactive":  # somebody has stopped it
                    return record
                self._await_ready()
            except AnimeGamerError as error:
                return self._undo(error.text)
            if record.checks + 1 < CHECKS:
                return self._change(checks=record.checks + 1)
            kept = self._change(phase=Phase.KEPT, checks=CHECKS)
            self._run(("systemctl", "disable", "--now", PROVE_TIMER))
            shutil.rmtree(self._backup, ignore_errors=True)
            self.versions.forget_previous()  # last: it may be the one that runs this
            return kept

    def take_back(self, reason: str) -> UpdateRecord:
        """Use the version before again. Raises ConfigError where none is kept."""
        if self.versions.previous is None:
            raise ConfigError("no version is kept to go back to", do="install the earlier wheel: kiosk update WHEEL")
        with self._lock():
            return self._undo(reason)

    def _undo(self, reason: str) -> UpdateRecord:
        """As it was before the update, as far as it came. A power cut within leaves it to the next check."""
        self._say(f"not kept: {reason}")
        record, old = self.record(), self.versions.previous
        assert record is not None
        switched = record.phase is not Phase.INSTALLING
        undone = replace(record, phase=Phase.TAKEN_BACK if switched else Phase.REFUSED, reason=reason)
        for do in self._way_back(old, switched, undone):
            try:
                do()
            except (AnimeGamerError, OSError) as error:  # the other steps are the more needed
                self._say(f"failed: {error}")
        return self.record() or undone

    def _way_back(self, old: Path | None, switched: bool, undone: UpdateRecord) -> Iterator[Callable[[], object]]:
        if switched and old is not None:
            yield lambda: self._run(("systemctl", "stop", SERVER))
            yield lambda: self.versions.use(old)
            yield self._restore
            yield lambda: self._run((str(old / "bin/animegamer-rt"), "kiosk", "install", "--yes"))
        yield lambda: self._run(("systemctl", "--no-block", "start", SERVER))
        yield lambda: shutil.rmtree(self._backup, ignore_errors=True)
        yield lambda: self._write(undone)
        yield lambda: self._run(("systemctl", "disable", "--now", PROVE_TIMER))
        yield self.versions.forget_previous

    def _keep(self, old: Path) -> None:
        self.versions.keep(old)
        self.versions.drop_others()

    def _switch(self, old: Path, new: Path, version: str) -> None:
        self._write(UpdateRecord(Phase.STARTING, version, _version_of(old), str(new), ""))
        self.versions.use(new)

    def _await_ready(self) -> None:
        end = time.monotonic() + READY_S
        while not self._ready():
            restarts = self._shown("NRestarts")
            if restarts.isdigit() and int(restarts) >= MAX_RESTARTS:
                raise ServerError("the server ends again and again", where=SERVER, found=f"{restarts} restarts")
            if time.monotonic() > end:
                raise ServerError("the server did not become ready", where=SERVER, expected=f"{READY_S:.0f} s at most")
            self._pause(PAUSE_S)

    def _shown(self, name: str) -> str:
        return self._run(("systemctl", "show", f"--property={name}", "--value", SERVER)).strip()

    def _await_turn(self, folder: Path) -> None:
        self._await_ready()
        expected = self._run((str(folder / "bin/animegamer-rt"), "--version")).strip()
        if (found := self._turn()) != expected:
            raise ServerError("another version answers", where=SERVER, found=found, expected=expected)

    def _back_up(self) -> None:
        shutil.rmtree(self._backup, ignore_errors=True)
        shutil.rmtree(self._aside, ignore_errors=True)
        if self._games.exists():
            back_up(self._games.parent, self._backup)

    def _restore(self) -> None:
        """The games' file as it was, if the newer version has changed its form; else it stays, with the new games."""
        copy, games = self._backup / FILE, self._games
        if not copy.exists() or _form(games) == _form(copy):
            return
        self._aside.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in games.parent.glob(FILE + "*"):
            shutil.move(path, self._aside / path.name)
        shutil.copy(copy, games)
        games.chmod(0o600)
        folder = games.parent.stat()
        os.chown(games, folder.st_uid, folder.st_gid)

    def _old(self) -> Path:
        old = self.versions.current
        if old is None or not read_receipt(self._root):
            do = "run: sudo animegamer-rt kiosk install, with the animegamer-rt of a virtual environment"
            raise ConfigError("no kiosk with a version of its own is installed", where=self.versions.folder, do=do)
        return old

    def _lock(self) -> AbstractContextManager[None]:
        return lock_folder(self.versions.folder)

    def _command(self, *command: str) -> Step:
        return Step(f"run   {' '.join(command)}", lambda: self._run(command))

    def _change(self, **fields: object) -> UpdateRecord:
        record = self.record()
        assert record is not None
        return self._write(replace(record, **fields))  # type: ignore[arg-type]

    def _write(self, record: UpdateRecord) -> UpdateRecord:
        record = replace(record, at=datetime.now().isoformat(" ", "minutes"))
        write_record(under(self._root, RECORD), record)
        return record


def _version_of(folder: Path) -> str:
    """The version of an environment, by its list of packages; the folder's name where that does not say it."""
    found = [path.name for path in folder.glob("lib/python*/site-packages/animegamer_rt-*.dist-info")]
    return found[0].removeprefix("animegamer_rt-").removesuffix(".dist-info") if found else folder.name


def _form(path: Path) -> int | None:
    """The version of the tables of a file of games; None where there is no such file, or it is none."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=rw", uri=True)) as games:
            [[version]] = games.execute("SELECT schema_version FROM store")
            return int(version)
    except (sqlite3.Error, ValueError):
        return None


def _same_disk(one: Path, other: Path) -> bool:
    return other.exists() and one.stat().st_dev == other.stat().st_dev


def _no() -> None:
    """Nothing to do now."""
